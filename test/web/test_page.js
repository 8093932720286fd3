#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
//
// Tests the page in Chromium against the real extender and kube-sim: `make web-test`. The page
// shows what inspect shows, follows changes, reports a lost connection, and is accessible.
//   GPUSHARE_SHOTS=DIR  saves screenshots there
'use strict';
const assert = require('assert');
const fs = require('fs');
const path = require('path');
const axe = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
const { World, until, scv, node, pod, browser } = require('./world');
const { readNodes, wanted, pendingPods, totals, isBare } = require('./shown');

const SHOTS = process.env.GPUSHARE_SHOTS;
const HOSTILE = '<img src=x onerror="document.title=1">';
const LONG = 'a-model-server-with-a-rather-long-name-that-has-to-be-broken-somewhere-7f9c';
const measured = (what) => console.log(`measured: ${what}`);
const shot = (page, name, fullPage = false) => (SHOTS
  ? page.screenshot({ path: path.join(SHOTS, `${name}.png`), fullPage }) : null);

// A container, what it uses of its card, and what enforces its promise.
const held = (namespace, name, uuid, usedMemory, enforcedBy) => ({ namespace, name, container: 'main', units: 1,
  resource: 'aliyun.com/gpu-mem', cards: [uuid], usage: [{ uuid, podUID: `uid-${name}`, usedMemory, enforcedBy }] });

// At least one of everything that the page can show.
const T4 = 16276;
function objects() {
  return [
    node('gpu-node-1'), scv('gpu-node-1', [{ freeMemory: T4 - 8100, links: 'X NV2 PIX PXB', numaNode: 0 },
      { freeMemory: T4 - 6020, links: 'NV2 X PHB NODE', numaNode: 0 },
      { freeMemory: T4 - 15012, links: 'PIX PHB X SYS', numaNode: 1 }, { links: 'PXB NODE SYS X' }],
    undefined, { podList: [held('default', 'chat-a', 'GPU-gpu-node-1-0', 8100, [])] }),
    pod('chat-a', 8, 'gpu-node-1', 0), pod('embedder', 2, 'gpu-node-1', 0, { namespace: 'search' }),
    pod('ranker', 4, 'gpu-node-1', 1, { namespace: 'search' }), pod('whisper', 6, 'gpu-node-1', 1, { core: 30 }),
    pod('trainer', 1, 'gpu-node-1', 2, { whole: true, namespace: 'research' }),
    node('gpu-node-2'), scv('gpu-node-2', [{ health: 'Unhealthy' }, { freeMemory: T4 - 9000, usageComplete: true }],
      undefined, { podList: [held('research', 'notebook-1', 'GPU-gpu-node-2-1', 6500, ['library', 'driver'])], processList: [
      { uuid: 'GPU-gpu-node-2-1', pid: 812, name: 'Xorg', usedMemory: 2500 }] }),
    pod('notebook-1', 5, 'gpu-node-2', 1, { namespace: 'research' }),
    { ...node('gpu-node-3', { 'gpushare/mode': 'card' }), spec: { unschedulable: true } }, scv('gpu-node-3', [{}, {}]),
    node('gpu-node-10'), scv('gpu-node-10', [{ model: HOSTILE, totalMemory: 512, freeMemory: 512 }, {}]),
    pod('lost', 3, 'gpu-node-10', 7),
    { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'unhealthy-gpu-gpu-node-10', namespace: 'kube-system' },
      data: { gpus: '1,5' } },
    node('gpu-node-4'), scv('gpu-node-4', [{ model: 'NVIDIA A100-SXM4-80GB', totalMemory: 81920, freeMemory: 81920 - 41000 },
      { model: 'NVIDIA A100-SXM4-80GB', totalMemory: 81920, freeMemory: 81920 - 30500 }]),
    ...['a', 'b', 'c', 'd'].map((x, i) => pod(`llama-${x}`, 10 + 2 * i, 'gpu-node-4', i % 2)),
    pod(LONG, 7, 'gpu-node-4', 1, { namespace: 'a-namespace-of-some-length' }),
    { apiVersion: 'v1', kind: 'Node', metadata: { name: 'old-node' }, status: {
      capacity: { 'aliyun.com/gpu-mem': '30', 'aliyun.com/gpu-count': '2' },
      allocatable: { 'aliyun.com/gpu-mem': '30', 'aliyun.com/gpu-count': '2' } } },
    pod('too-much', 20, 'old-node', 0),
    node('cpu-1'), node('cpu-2'),
    pod('wants-much', 70), pod('wants-two', 30, null, undefined, { labels: { 'aliyun.com/gpu-count': '2' } }),
    pod('wants-little', 2), pod('wants-cards', 5, null, undefined, { whole: true }),
    pod('odd', 5, null, undefined, { labels: { 'aliyun.com/gpu-count': 'x' } }),
  ];
}

// Cordons and uncordons nodes of a generated cluster, 20 per second; `end` returns how many.
function changing(world, n) {
  let going = true, done = 0;
  const all = (async () => {
    for (; going; done++) {
      await world.cordon(`node-${String(done * 7 % n).padStart(5, '0')}`, done * 7 % (2 * n) < n);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  })();
  return { end: async () => { going = false; await all; return done; } };
}

const isLive = (page) => page.waitForFunction(() => document.getElementById('live').dataset.state === 'live',
  null, { timeout: 60000 });

async function open(context, world, at = '') {
  const page = await context.newPage();
  page.faults = [];
  page.on('pageerror', (error) => page.faults.push(String(error)));
  page.on('console', (message) => message.type() === 'error' && page.faults.push(message.text()));
  page.on('request', (request) => request.url().startsWith(world.url) || request.url().startsWith('data:') ||
    page.faults.push(`asks for ${request.url()}`));
  await page.goto(world.url + at);
  await isLive(page);
  await page.waitForFunction(() => document.getElementById('empty').hidden || document.getElementById('clear').hidden === false);
  return page;
}

const texts = (page, ids) => page.evaluate((all) => Object.fromEntries(all.map((id) =>
  [id, document.getElementById(id).textContent])), ids);
const shownNames = (page) => page.evaluate(() => [...document.querySelectorAll('#nodes > li:not([hidden]) h3')].map((h) => h.textContent));

const byName = (a, b) => (a.name < b.name ? -1 : 1);
function assertSame(shown, want) {
  const near = (a, b) => Math.abs(a - b) < 0.01;
  assert.deepStrictEqual(shown.map((n) => n.name).sort(), want.map((n) => n.name).sort());
  shown.sort(byName);
  want.sort(byName).forEach((w, i) => {
    const s = shown[i];
    w.cards.forEach((card, k) => {
      for (const bar of ['bar', 'outside', 'thin']) {
        assert.ok(near(s.cards[k][bar], card[bar]), `${w.name} ${card.gpu}: ${bar} is ${s.cards[k][bar]}, not ${card[bar]}`);
        s.cards[k][bar] = card[bar];
      }
    });
    assert.deepStrictEqual(s, w);
  });
}

// No violation of WCAG 2.2 AA or of best practices that axe finds.
async function assertAccessible(page, what) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => globalThis.axe.run(document));
  const words = found.violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.map((n) => `${n.html.slice(0, 200)} ${n.failureSummary}`).join('; ')}`);
  assert.deepStrictEqual(words, [], what);
}

const tests = {
  async 'shows exactly the nodes, cards, pods and numbers of inspect'({ context, world }) {
    const page = await open(context, world);
    const inspect = await world.inspect();
    const health = inspect.nodes.flatMap((n) => n.devs).map((d) => d.health);
    for (const state of ['Unhealthy', 'Excluded', 'Healthy'])
      assert.ok(health.includes(state), state); // else the test proves little
    assert.ok(inspect.nodes.some((n) => n.devs.some((d) => d.overcommitted)));
    assert.ok(inspect.nodes.some((n) => n.devs.some((d) => d.withheldMiB && !d.usageComplete)));
    assert.ok(inspect.nodes.some((n) => n.devs.some((d) => d.overuseMiB && d.withheldMiB > d.overuseMiB)));
    assert.ok(inspect.nodes.some((n) => n.devs.some((d) => d.promisedComputePercent)));
    assert.deepStrictEqual(inspect.nodes.filter((n) => n.schedulingDisabled).map((n) => n.name), ['gpu-node-3']);
    assertSame(await page.evaluate(readNodes), wanted(inspect));
    await page.click('#bare-title'); // its content is drawn when it opens
    await page.waitForFunction(() => document.querySelector('#bare-nodes li'));
    assert.deepStrictEqual(await page.evaluate(() => [...document.querySelectorAll('#bare-nodes li')].map((li) => li.textContent)),
      inspect.nodes.filter(isBare).map((n) => `${n.name}: ${n.reason}`));
    const want = totals(inspect);
    assert.deepStrictEqual(await texts(page, Object.keys(want)), want);
    assert.deepStrictEqual(await page.evaluate(() => [...document.querySelectorAll('#pending-rows tr')].map((row) =>
      [...row.cells].map((cell) => cell.textContent))), pendingPods(inspect));
    assert.strictEqual(await page.title(), 'gpushare: GPU memory');
    assert.strictEqual(await page.locator('img').count(), 0); // untrusted text stays text
    assert.deepStrictEqual(page.faults, []);
    await page.close();
  },

  async 'the search finds pods, nodes and models, and reports no match'({ context, world }) {
    const page = await open(context, world);
    const all = await shownNames(page);
    assert.deepStrictEqual(all.slice(0, 5), ['gpu-node-1', 'gpu-node-2', 'gpu-node-3', 'gpu-node-4', 'gpu-node-10']);
    const find = async (words, names) => {
      await page.fill('#search', words);
      assert.deepStrictEqual(await shownNames(page), names, words);
    };
    await find('whisper', ['gpu-node-1']);
    assert.strictEqual(await page.locator('.card.hit').count(), 1);
    await find('SEARCH/ranker', ['gpu-node-1']);
    await find('a100 llama-b', ['gpu-node-4']);
    await find('gpu-gpu-node-2-1', ['gpu-node-2']);
    await find('onerror=', ['gpu-node-10']);
    assert.match(page.url(), /\?q=onerror/);
    await page.waitForFunction(() => document.getElementById('count').textContent === '1 of 6 nodes');
    await find('no such thing', []);
    await page.waitForFunction(() => !document.getElementById('empty').hidden);
    assert.match(await page.textContent('#empty-title'), /Nothing matches “no such thing”/);
    await shot(page, 'empty');
    await assertAccessible(page, 'nothing found');
    await page.click('#clear');
    assert.deepStrictEqual(await shownNames(page), all);
    await page.selectOption('#which', 'problem');
    assert.deepStrictEqual(await shownNames(page), ['gpu-node-2', 'gpu-node-10', 'old-node']);
    await page.selectOption('#which', 'free');
    assert.ok(!(await shownNames(page)).includes('gpu-node-3')); // free, but cordoned
    await page.selectOption('#which', 'all');
    await find('cordoned', ['gpu-node-3']);
    await shot(page, 'cordoned');
    await assertAccessible(page, 'a cordoned node');
    await page.close();
    const other = await open(context, world, '?q=whisper');
    assert.deepStrictEqual(await shownNames(other), ['gpu-node-1']);
    await other.close();
  },

  async 'the tooltip follows pointer and focus, and a card opens to a list'({ context, world }) {
    const page = await open(context, world);
    const tip = page.locator('#tip');
    await page.hover('#nodes > li:first-child .card:nth-child(1) button');
    await tip.waitFor({ state: 'visible' });
    assert.match(await tip.textContent(), /gpu-node-1 · GPU 0.*default\/chat-a8,192 MiB.*search\/embedder2,048 MiB/);
    await shot(page, 'hover');
    await page.keyboard.press('Escape');
    assert.ok(await tip.isHidden());
    await page.mouse.move(2, 2);
    await page.focus('#which');
    await page.keyboard.press('Tab');
    assert.match(await tip.textContent(), /gpu-node-1 · GPU 0/);
    const focused = () => page.evaluate(() => ({ gpu: document.activeElement.querySelector('.gpu').textContent,
      open: document.activeElement.getAttribute('aria-expanded'),
      by: document.activeElement.getAttribute('aria-describedby') }));
    assert.deepStrictEqual(await focused(), { gpu: 'GPU 0', open: 'false', by: 'tip' });
    await page.keyboard.press('ArrowDown');
    assert.match(await tip.textContent(), /GPU 1.*search\/ranker/);
    await page.keyboard.press('Enter');
    assert.deepStrictEqual(await focused(), { gpu: 'GPU 1', open: 'true', by: null });
    assert.ok(await tip.isHidden());
    assert.match(await page.textContent('#nodes > li:first-child .card:nth-child(2) .detail'), /search\/ranker4,096 MiB/);
    await page.keyboard.press('Enter');
    assert.deepStrictEqual((await focused()).open, 'false');
    await page.close();
  },

  async 'shows a bind, a new node and a deleted node at once'({ context, world }) {
    const page = await open(context, world);
    const row = page.locator('#nodes > li', { has: page.locator('h3', { hasText: /^gpu-node-1$/ }) }).locator('.card').nth(3);
    await page.focus('#nodes > li:first-child .card:nth-child(4) button');
    await world.load([pod('new-one', 3)]);
    await page.waitForFunction(() => document.getElementById('pending-rows').textContent.includes('default/new-one'));
    await until('it is bound', async () => await world.bind('new-one', 'gpu-node-1') === '');
    const start = Date.now();
    await until('inspect', async () => JSON.stringify((await world.inspect()).nodes).includes('new-one'));
    await page.waitForFunction(() => [...document.querySelectorAll('.pair')].length &&
      ![...document.querySelectorAll('#pending-rows')].some((e) => e.textContent.includes('new-one')));
    await until('the card', async () => {
      const said = (await world.inspect()).nodes.find((n) => n.name === 'gpu-node-1').devs
        .find((d) => d.pods.some((p) => p.name === 'new-one'));
      const pair = await page.locator('#nodes > li').first().locator('.card').nth(said.id).locator('.pair').textContent();
      return pair.startsWith(String(Math.round(said.promisedMiB / 1024 * 10) / 10));
    });
    measured(`a bind is on the page after ${Date.now() - start} ms`);
    assert.ok(await row.locator('button').evaluate((b) => b === document.activeElement)); // keeps the focus
    await world.load([node('gpu-node-5'), scv('gpu-node-5', [{}])]);
    await until('the new node', async () => (await shownNames(page)).includes('gpu-node-5'));
    assert.strictEqual((await shownNames(page)).indexOf('gpu-node-5'), 4); // at its position
    await world.remove('/api/v1/nodes/gpu-node-5');
    await world.remove('/apis/core.run-linux.com/v1/scvs/gpu-node-5');
    await until('its end', async () => !(await shownNames(page)).includes('gpu-node-5'));
    await world.remove('/api/v1/namespaces/default/pods/new-one');
    await until('inspect without it', async () => !JSON.stringify(await world.inspect()).includes('new-one'));
    const want = wanted(await world.inspect());
    await until('all as it was', async () => {
      const shown = await page.evaluate(readNodes);
      return shown[0].sum === want.find((n) => n.name === 'gpu-node-1').sum;
    });
    assertSame(await page.evaluate(readNodes), wanted(await world.inspect()));
    assert.deepStrictEqual(page.faults, []);
    await page.close();
  },

  async 'shows at once that a node is cordoned or uncordoned'({ context, world }) {
    const page = await open(context, world);
    const mark = page.locator('#nodes > li', { has: page.locator('h3', { hasText: /^gpu-node-4$/ }) }).locator('.mark');
    assert.ok(await mark.isHidden());
    await world.cordon('gpu-node-4', true);
    await mark.waitFor({ state: 'visible' });
    assert.strictEqual(await mark.textContent(), 'cordoned');
    assertSame(await page.evaluate(readNodes), wanted(await world.inspect()));
    await world.cordon('gpu-node-4', null);
    await mark.waitFor({ state: 'hidden' });
    assert.deepStrictEqual(page.faults, []);
    await page.close();
  },

  async 'reports a lost extender and reconnects'({ context, world }) {
    const page = await open(context, world);
    await world.extender.end('SIGKILL');
    await page.waitForFunction(() => document.getElementById('live').dataset.state === 'lost');
    assert.match(await page.textContent('#banner-text'), /^No connection to the extender \(unreachable\)\. Showing the state of \d/);
    assert.ok((await shownNames(page)).length > 3); // the last state stays
    await shot(page, 'lost');
    await assertAccessible(page, 'lost');
    await world.remove('/api/v1/namespaces/default/pods/whisper'); // while disconnected
    await world.startExtender(world.observePort);
    await page.click('#retry', { timeout: 1000 }).catch(() => {}); // the page may have reconnected already
    await isLive(page);
    assert.ok(await page.locator('#banner').isHidden());
    assertSame(await page.evaluate(readNodes), wanted(await world.inspect()));
    await page.close();
  },

  async 'kubectl inspect gpushare --serve shows the cluster to clients with its URL only'({ context, world }) {
    const { program, url } = await world.serve();
    const page = await open(context, { url });
    // Not the extender's inspect: which use is external depends on the order in which objects arrived.
    assertSame(await page.evaluate(readNodes), wanted(await (await fetch(`${url}inspect`)).json()));
    assert.strictEqual(await page.textContent('#holder'), 'Read from the API server with your own rights');
    await assertAccessible(page, 'served');
    await world.load([node('served-later'), scv('served-later', [{}])]);
    await page.waitForFunction(() => [...document.querySelectorAll('#nodes h3')].some((h) => h.textContent === 'served-later'));
    await world.remove('/apis/core.run-linux.com/v1/scvs/served-later');
    await world.remove('/api/v1/nodes/served-later');
    await page.waitForFunction(() => ![...document.querySelectorAll('#nodes h3')].some((h) => h.textContent === 'served-later'));
    assert.deepStrictEqual(page.faults, []);
    const other = await context.newPage(); // of another origin, without a policy of its own
    for (const target of [`${url}inspect`, new URL('/inspect', url).href])
      assert.strictEqual(await other.evaluate((at) => fetch(at).then(() => 'read', () => 'refused'), target), 'refused');
    await other.close();
    assert.strictEqual((await fetch(new URL('/inspect', url))).status, 403);
    await program.end('SIGINT');
    await page.waitForFunction(() => document.getElementById('live').dataset.state === 'lost');
    assert.match(await page.textContent('#banner-text'), /^No connection to .kubectl inspect gpushare --serve. \(unreachable\)\./);
    await page.close();
  },

  async 'says since when nothing is known of the cluster'({ context }) {
    const world = await World.start('nodes=2');
    const { program, url } = await world.serve();
    const say = async (name, body, method = 'POST') => assert.ok((await fetch(`${world.api}/kube-sim/${name}`,
      { method, body: body && JSON.stringify(body) })).ok);
    const isLost = (page) => page.waitForFunction(() => document.getElementById('live').dataset.state === 'lost', null, { timeout: 15000 });
    const pages = await Promise.all([world, { url }].map((at) => open(context, at)));
    await say('faults', { action: 'answer', status: 401 }); // the login has expired
    await say('watches', { action: 'cut' });
    for (const page of [...pages, await context.newPage()]) {
      if (!page.faults)
        await page.goto(url); // a fresh page is not live either
      await isLost(page);
      assert.match(await page.textContent('#live-text'), /^As of \d/);
      assert.match(await page.textContent('#banner-text'), /^Not up to date: the watch of \w+ delivers nothing: HTTP 401.*\. Showing the state of \d/);
      assert.ok(await page.evaluate(() => document.body.classList.contains('stale')));
      assert.strictEqual((await shownNames(page)).length, 2); // the last state stays
    }
    await shot(pages[1], 'stale');
    await assertAccessible(pages[1], 'stale');
    for (const at of [`${world.url}inspect`, `${url}inspect`, `${world.url}inspect/node-00000`]) {
      const answer = await (await fetch(at)).json();
      assert.match(answer.staleReason, /^the watch of \w+ delivers nothing: HTTP 401/);
      assert.ok(Math.abs(Date.now() - Date.parse(answer.staleSince)) < 60000, answer.staleSince);
    }
    assert.match(program.said, /^kubectl-inspect-gpushare: as of \d\d:\d\d:\d\d: the watch of \w+ delivers nothing: HTTP 401/m);
    await say('faults', null, 'DELETE'); // a new login
    await Promise.all(pages.map(isLive));
    assert.ok(await pages[1].locator('#banner').isHidden());
    assert.ok(!('staleReason' in await (await fetch(`${url}inspect`)).json()));
    await world.sim.end('SIGKILL'); // the API server is gone
    await Promise.all(pages.map(isLost));
    assert.match(await pages[1].textContent('#banner-text'), /^Not up to date: the watch of \w+ delivers nothing: /);
    await program.end('SIGINT');
    await Promise.all(pages.map((page) => page.close()));
    await world.stop();
  },

  async 'shows the error of an extender that is not ready'({ context, world }) {
    const page = await context.newPage();
    await page.route('**/inspect*', (route) => route.fulfill({ status: 503, contentType: 'application/json',
      body: '{"error":"pods are not listed yet"}' }));
    await page.goto(world.url);
    await page.waitForFunction(() => document.getElementById('live').dataset.state === 'lost');
    assert.match(await page.textContent('#banner-text'), /does not answer: pods are not listed yet\./);
    await shot(page, 'unready');
    await assertAccessible(page, 'never connected');
    await page.unroute('**/inspect*');
    await isLive(page);
    await page.close();
  },

  async 'polls when no stream is free'({ context, world }) {
    const page = await context.newPage();
    await page.route('**/inspect?watch=true', (route) => route.fulfill({ status: 503, contentType: 'application/json',
      body: '{"error":"too many watches: 64 are open"}' }));
    await page.goto(world.url);
    await page.waitForFunction(() => document.getElementById('live').dataset.state === 'polling');
    await page.waitForFunction(() => document.getElementById('empty').hidden);
    assertSame(await page.evaluate(readNodes), wanted(await world.inspect()));
    await page.close();
  },

  async 'shows what connects the cards of a node'({ context, world }) {
    const page = await open(context, world);
    const links = page.locator('#nodes > li:first-child .links');
    assert.strictEqual(await page.locator('.links:not([hidden])').count(), 1); // unknown at the others
    assert.strictEqual(await page.locator('.links table').count(), 0); // made when it is opened
    await links.locator('summary').focus();
    await page.keyboard.press('Enter');
    const cell = links.locator('tbody tr:nth-child(1) td:nth-child(3)');
    assert.strictEqual(await cell.textContent(), 'NV2');
    assert.match(await links.locator('caption').textContent(), /^Connections of the cards of gpu-node-1\. NV and a number: NVLinks/);
    assert.deepStrictEqual(await links.locator('th').evaluateAll((all) => all.map((th) => `${th.scope} ${th.textContent}`)),
      ['col GPU0', 'col GPU1', 'col GPU2', 'col GPU3', 'col NUMA', 'row GPU0', 'row GPU1', 'row GPU2', 'row GPU3']);
    const colors = await links.locator('td').evaluateAll((all) => Object.fromEntries(all.map((td) =>
      [td.className, getComputedStyle(td).backgroundColor])));
    assert.deepStrictEqual(Object.keys(colors).sort(), ['', 'NODE', 'NV', 'PHB', 'PIX', 'PXB', 'SYS']);
    assert.strictEqual(new Set(Object.values(colors)).size, 7);
    for (const scheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme: scheme });
      await assertAccessible(page, `connections, ${scheme}`);
      const unsure = await page.evaluate(() => globalThis.axe.run('.links').then((found) => found.incomplete.map((v) => v.id)));
      assert.deepStrictEqual(unsure, [], 'the contrast of each cell is known');
      await shot(page, `links-${scheme}`);
    }
    await page.setViewportSize({ width: 360, height: 740 });
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= 360));
    assert.strictEqual(await page.evaluate(() => getComputedStyle(document.querySelector('.links tr')).display), 'table-row');
    await page.setViewportSize({ width: 1280, height: 720 });
    await links.locator('[role=group]').focus();
    for (const unschedulable of [true, null]) {
      await world.cordon('gpu-node-1', unschedulable);
      await page.locator('#nodes > li:first-child .mark').waitFor({ state: unschedulable ? 'visible' : 'hidden' });
    }
    assert.strictEqual(await page.evaluate(() => document.activeElement.getAttribute('role')), 'group'); // keeps the focus
    const objectsOfNode = objects().filter((o) => o.kind === 'Scv' && o.metadata.name === 'gpu-node-1');
    const change = async (row0, row1) => {
      Object.assign(objectsOfNode[0].status.cardList[0], { links: row0 });
      Object.assign(objectsOfNode[0].status.cardList[1], { links: row1 });
      await world.load(objectsOfNode);
    };
    await change('X NV1 PIX PXB', 'NV1 X PHB NODE'); // a link went down
    await page.waitForFunction(() => document.querySelector('.links td.NV').textContent === 'NV1');
    await change('X NV2 PIX PXB', 'NV2 X PHB NODE');
    await page.waitForFunction(() => document.querySelector('.links td.NV').textContent === 'NV2');
    assertSame(await page.evaluate(readNodes), wanted(await world.inspect()));
    assert.deepStrictEqual(page.faults, []);
    await page.close();
  },

  async 'words of connections that it does not know are unknown'({ context, world }) {
    const page = await context.newPage();
    const inspect = await world.inspect();
    inspect.nodes = inspect.nodes.filter((n) => n.name === 'gpu-node-1');
    ['X NV2 PXB NV9999 SYS SYS SYS', `X ${HOSTILE}`, undefined, 'nv2 NV02 constructor X'].forEach((row, i) => {
      inspect.nodes[0].devs[i].links = row;
    });
    await page.route('**/inspect?watch=true', (route) => route.fulfill({ status: 503, body: '{"error":"full"}' }));
    await page.route('**/inspect', (route) => route.fulfill({ json: inspect }));
    await page.goto(world.url);
    await page.waitForFunction(() => document.getElementById('count').textContent === '1 node');
    const [shown] = await page.evaluate(readNodes);
    assert.deepStrictEqual(shown.links, ['GPU0 GPU1 GPU2 GPU3 NUMA', 'GPU0 X NV2 PXB ? 0', 'GPU1 ? X ? ? 0', 'GPU2 ? ? X ? 1',
      'GPU3 ? ? ? X –']);
    await assertAccessible(page, 'unknown connections');
    await page.close();
  },

  async 'is accessible in light and dark mode'({ context, world }) {
    const page = await open(context, world);
    const states = async (name) => {
      await assertAccessible(page, name);
      await page.hover('#nodes > li:first-child .card button');
      await assertAccessible(page, `${name}, beside the pointer`);
      await page.keyboard.press('Escape');
      await page.click('#nodes > li:first-child .card:nth-child(2) button');
      await page.mouse.move(2, 2);
      await assertAccessible(page, `${name}, a card is open`);
      await page.click('#nodes > li:first-child .card:nth-child(2) button');
      await page.mouse.move(2, 2);
    };
    await shot(page, 'light');
    await states('light');
    await page.emulateMedia({ colorScheme: 'dark' });
    await shot(page, 'dark');
    await states('dark');
    await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' });
    const motion = await page.evaluate(() => getComputedStyle(document.querySelector('.track > i')).transitionDuration);
    assert.strictEqual(motion, '0s');
    await page.emulateMedia({ reducedMotion: 'no-preference', forcedColors: 'active' });
    await shot(page, 'forced');
    await page.close();
  },

  async 'fits a phone screen'({ context, world }) {
    const page = await open(context, world);
    await page.setViewportSize({ width: 360, height: 740 });
    for (const scheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme: scheme });
      const width = await page.evaluate(() => Math.max(document.documentElement.scrollWidth,
        ...[...document.querySelectorAll('main *')].filter((e) => !e.closest('.unseen'))
          .map((e) => e.getBoundingClientRect().right)));
      assert.ok(width <= 360.5, `${width}`);
      await assertAccessible(page, `360 px, ${scheme}`);
      await shot(page, `narrow-${scheme}`, true);
    }
    await page.close();
  },

  async 'stays responsive with 1,000 and 5,000 nodes'({ context }) {
    for (const [n, most] of [[1000, 3000], [5000, 10000]]) {
      const world = await World.start(`nodes=${n},cards=8,pods=8,uuid=1,node-bytes=0,pod-bytes=0`);
      try {
        const page = await context.newPage();
        const start = Date.now();
        await page.goto(world.url);
        await page.waitForFunction((want) => document.getElementById('count').textContent === want,
          `${n.toLocaleString('en')} nodes`, { timeout: 60000 });
        const ready = Date.now() - start;
        if (n === 1000)
          await shot(page, 'thousand');
        const changes = changing(world, n);
        const scroll = await page.evaluate(async () => {
          const times = [];
          let last = performance.now();
          for (let i = 0; i < 180; i++) {
            scrollBy(0, 400);
            const now = await new Promise((resolve) => requestAnimationFrame(resolve));
            times.push(now - last);
            last = now;
          }
          times.sort((a, b) => a - b);
          return { p50: times[90], p95: times[171], max: times[179], elements: document.querySelectorAll('*').length };
        });
        const changed = await changes.end();
        const find = await page.evaluate(async () => {
          const box = document.getElementById('search');
          const start = performance.now();
          box.value = 'node-7';
          box.dispatchEvent(new Event('input'));
          await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
          return performance.now() - start;
        });
        measured(`${n} nodes: shown after ${ready} ms; scrolling while ${changed} change: frames of ${Math.round(scroll.p50)} ms, ` +
          `p95 ${Math.round(scroll.p95)}, longest ${Math.round(scroll.max)}; a letter of the search ${Math.round(find)} ms; ` +
          `${scroll.elements} elements`);
        assert.ok(changed > 0);
        assert.ok(scroll.p95 < most, `p95 ${scroll.p95}`);
        assert.ok(scroll.elements < n * 14 + 30000, `${scroll.elements} elements`);
        await page.close();
      } finally {
        await world.stop();
      }
    }
  },
};

(async () => {
  let passed = 0, failed = 0;
  const world = await World.start();
  await world.load(objects());
  await until('what was loaded', async () => {
    const { nodes, pendingPods: line } = await world.inspect();
    return nodes.length === 8 && line.length === 5 && JSON.stringify(nodes).includes('notebook-1');
  });
  const chromium = await browser();
  const only = process.argv[2] || '';
  for (const [name, test] of Object.entries(tests)) {
    if (!name.includes(only))
      continue;
    const context = await chromium.newContext({ viewport: { width: 1400, height: 900 }, colorScheme: 'light' });
    context.setDefaultTimeout(30000);
    try {
      await test({ context, world });
      passed++;
    } catch (error) {
      failed++;
      console.log(`FAILED: ${name}\n${error.stack}`);
    }
    await context.close();
  }
  await chromium.close();
  await world.stop();
  console.log(`${passed} passed, ${failed} failed`);
  process.exitCode = failed ? 1 : 0;
})().catch((error) => {
  console.log(`${error.stack}\n0 passed, 1 failed`);
  process.exit(1);
});
