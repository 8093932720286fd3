// SPDX-License-Identifier: Apache-2.0
//
// Starts kube-sim, the extender and Chromium for the tests of the page.
'use strict';
const assert = require('assert');
const fs = require('fs');
const os = require('os');
const path = require('path');
const { spawn } = require('child_process');
const { chromium } = require('playwright-core');

const BUILD = process.env.GPUSHARE_BUILD || 'build';
const WAIT_MS = 60000;

// Waits until the condition is true and returns its value.
async function until(what, condition, limit = WAIT_MS) {
  const end = Date.now() + limit;
  for (;;) {
    const value = await condition();
    if (value)
      return value;
    assert.ok(Date.now() < end, `never true: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

// One of our programs, which prints where it listens.
class Program {
  constructor(name, args) {
    this.said = '';
    this.over = false;
    this.child = spawn(path.join(BUILD, name), args, { stdio: ['ignore', 'pipe', 'pipe'],
      env: { PATH: process.env.PATH, HOME: os.tmpdir() } });
    for (const stream of [this.child.stdout, this.child.stderr])
      stream.on('data', (data) => { this.said += data; });
    this.child.on('exit', () => { this.over = true; });
  }
  async port(mark) {
    const found = await until(`${mark} ADDRESS:PORT`, () => {
      assert.ok(!this.over, `it ended: ${this.said}`);
      return this.said.match(new RegExp(`^${mark} .*:(\\d+)$`, 'm'));
    });
    return Number(found[1]);
  }
  async end(signal = 'SIGTERM') {
    if (this.over)
      return;
    this.child.kill(signal);
    await until('its end', () => this.over);
  }
}

// One simulated cluster and one extender, in a temporary folder.
class World {
  static async start(generate) {
    const world = new World();
    world.dir = fs.mkdtempSync(path.join(os.tmpdir(), 'gpushare-web.'));
    const sim = ['--port', '0', '--tick', '20ms', '--run-pods',
      '--load', 'manifests/namespace.yaml', '--load', 'manifests/lease.yaml'];
    world.sim = new Program('kube-sim', generate ? [...sim, '--generate', generate] : sim);
    world.api = `http://127.0.0.1:${await world.sim.port('listening on')}`;
    fs.writeFileSync(path.join(world.dir, 'kubeconfig'), JSON.stringify({
      apiVersion: 'v1', kind: 'Config', 'current-context': 'c',
      clusters: [{ name: 'c', cluster: { server: world.api } }], users: [{ name: 'u', user: {} }],
      contexts: [{ name: 'c', context: { cluster: 'c', user: 'u' } }] }));
    await world.startExtender(0);
    return world;
  }
  async startExtender(port) {
    this.extender = new Program('gpushare-extender', ['--kubeconfig', path.join(this.dir, 'kubeconfig'),
      '--listen', '127.0.0.1', '--port', '0', '--observe-port', String(port)]);
    this.observePort = await this.extender.port('observing on');
    this.verbs = `http://127.0.0.1:${await this.extender.port('listening on')}`;
    this.url = `http://127.0.0.1:${this.observePort}/`;
    await until('ready and leader', async () => {
      const all = await this.inspect();
      return all.leader && !all.error;
    });
  }
  // `kubectl inspect gpushare --serve` with this cluster; returns the program and its URL.
  async serve() {
    const program = new Program('kubectl-inspect-gpushare', ['--kubeconfig', path.join(this.dir, 'kubeconfig'), '--serve']);
    const found = await until('its URL', () => {
      assert.ok(!program.over, `it ended: ${program.said}`);
      return program.said.match(/^serving the page on (http:\S+)$/m);
    });
    return { program, url: found[1] };
  }
  async inspect() {
    return (await fetch(`${this.url}inspect`)).json();
  }
  async load(objects) {
    const answer = await fetch(`${this.api}/kube-sim/load`, { method: 'POST', body: JSON.stringify(objects) });
    assert.ok(answer.ok, await answer.text());
  }
  async remove(at) {
    const answer = await fetch(this.api + at, { method: 'DELETE', body: '{"gracePeriodSeconds":0}',
      headers: { 'Content-Type': 'application/json' } });
    assert.ok(answer.ok, await answer.text());
  }
  async cordon(name, unschedulable) {
    const answer = await fetch(`${this.api}/api/v1/nodes/${name}?fieldManager=test`, { method: 'PATCH',
      headers: { 'Content-Type': 'application/merge-patch+json' }, body: JSON.stringify({ spec: { unschedulable } }) });
    assert.ok(answer.ok, await answer.text());
  }
  // Binds a pod in namespace default, as kube-scheduler does.
  async bind(pod, node) {
    const answer = await fetch(`${this.verbs}/bind`, { method: 'POST',
      headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(
        { PodName: pod, PodNamespace: 'default', PodUID: `uid-${pod}`, Node: node }) });
    return (await answer.json()).Error;
  }
  async stop() {
    await this.extender.end();
    await this.sim.end();
    fs.rmSync(this.dir, { recursive: true });
  }
}

// Measured at `at`, by default long ago. `more`: other members of its status.
const scv = (name, cards, at = '2026-11-21T09:00:00Z', more = {}) => ({ apiVersion: 'core.run-linux.com/v1', kind: 'Scv', metadata: { name },
  spec: { updateInterval: 1000 },
  status: { updateTime: at, cardList: cards.map((card, id) => ({ id, health: 'Healthy',
    model: 'Tesla T4', uuid: `GPU-${name}-${id}`, totalMemory: 16276, freeMemory: 16276, ...card })), ...more } });
const node = (name, labels = {}) => ({ apiVersion: 'v1', kind: 'Node', metadata: { name, labels }, status: {} });
// `card` undefined: pending; for labels and annotations see docs/user-guide.md.
const pod = (name, units, on, card, more = {}) => ({ apiVersion: 'v1', kind: 'Pod',
  metadata: { name, namespace: more.namespace || 'default', uid: `uid-${name}`, labels: more.labels || {},
    annotations: card === undefined ? {} : { ALIYUN_COM_GPU_MEM_IDX: String(card), ALIYUN_COM_GPU_MEM_POD: String(units),
      ALIYUN_COM_GPU_MEM_ASSIGNED: 'true', ALIYUN_COM_GPU_MEM_ASSUME_TIME: '1600000000000000000' } },
  spec: { ...(on ? { nodeName: on } : {}), containers: [{ name: 'main', image: 'i',
    resources: { limits: { [more.whole ? 'aliyun.com/gpu-count' : 'aliyun.com/gpu-mem']: String(units),
      ...(more.core ? { 'aliyun.com/gpu-core.percentage': String(more.core) } : {}) } } }] },
  status: { phase: on ? 'Running' : 'Pending' } });

const browser = () => chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
  args: ['--disable-dev-shm-usage'] });

module.exports = { World, until, scv, node, pod, browser };
