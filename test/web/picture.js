// SPDX-License-Identifier: Apache-2.0
//
// Makes docs/images/page.png: the page of a small invented cluster.
//
//   NODE_PATH=build/web/node_modules node test/web/picture.js docs/images
'use strict';
const path = require('path');
const { World, until, scv, node, pod, browser } = require('./world');

const KINDS = { a100: ['NVIDIA A100-SXM4-80GB', 81920, 8], l40s: ['NVIDIA L40S', 46068, 4], t4: ['Tesla T4', 15360, 4] };
const NODES = { 'gpu-01': 'l40s', 'gpu-02': 't4', 'gpu-03': 'l40s', 'gpu-04': 'a100', 'gpu-05': 'a100', 'gpu-06': 'a100', 'gpu-07': 't4' };
const APPS = [['chat', 'llama-70b', 38], ['chat', 'llama-8b', 17], ['search', 'embedder', 4], ['search', 'reranker', 6],
  ['speech', 'whisper', 10], ['research', 'notebook', 8], ['vision', 'segment', 12], ['vision', 'ocr', 3]];

function objects() {
  const all = [];
  const now = new Date().toISOString().replace(/\..*/, 'Z');
  let seed = 11;
  const next = (n) => { seed = (seed * 48271) % 2147483647; return seed % n; };
  for (const [name, kind] of Object.entries(NODES)) {
    const [model, total, n] = KINDS[kind];
    const cards = [];
    for (let i = 0; i < n; i++) {
      let left = Math.floor(total / 1024), used = 0;
      const out = name === 'gpu-02' && i === 3;
      for (let k = 0; k < 4 && !out && next(8) > 0; k++) {
        const [namespace, app, units] = APPS[next(APPS.length)];
        if (units > left)
          continue;
        left -= units;
        used += Math.floor(units * 1024 * (55 + next(45)) / 100);
        all.push(pod(`${app}-${name}-${i}${k}`, units, name, i, { namespace }));
      }
      if (name === 'gpu-03' && i === 3)
        used += 16300; // a process outside Kubernetes
      cards.push({ model, totalMemory: total, freeMemory: total - Math.min(used, total), health: out ? 'Unhealthy' : 'Healthy' });
    }
    all.push(node(name), scv(name, cards, now));
  }
  all.push(pod('train-7', 8, null, undefined, { whole: true, namespace: 'research' }),
    pod('llama-405b', 160, null, undefined, { namespace: 'chat', labels: { 'aliyun.com/gpu-count': '2' } }));
  return all;
}

(async () => {
  const world = await World.start();
  const all = objects(), measured = (object) => object.kind === 'Scv';
  await world.load(all.filter((object) => !measured(object)));
  await until('the pods', async () => (await world.inspect()).pendingPods.length === 2);
  // What was measured before a pod ran would count as used outside Kubernetes.
  await world.load(all.filter(measured));
  await until('the cards', async () => (await world.inspect()).nodes.every((n) => n.source === 'scv'));
  const chromium = await browser();
  const page = await chromium.newPage({ viewport: { width: 1400, height: 880 }, colorScheme: 'light' });
  await page.goto(world.url);
  await page.waitForFunction(() => document.getElementById('live').dataset.state === 'live');
  await page.waitForFunction(() => document.getElementById('count').textContent === '7 nodes');
  await page.waitForTimeout(500); // the bars are animated
  await page.screenshot({ path: path.join(process.argv[2], 'page.png') });
  await chromium.close();
  await world.stop();
})();
