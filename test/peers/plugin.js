// SPDX-License-Identifier: Apache-2.0
//
// A kubelet for gpushare-device-plugin, for test_plugin.c: registration and podresources
// servers of grpc-js in the folder DIR, and the calls of a kubelet in their usual order.
// Objects are written to the API server at URL (kube-sim). The plugin is the process PID;
// its cards are in DIR/cards.json: GPU-0 and GPU-1, 16 GiB each. Exit status 0: every
// response was as expected.
//
//   plugin.js DIR URL PID
'use strict';
const assert = require('assert');
const fs = require('fs');
const path = require('path');
const { grpc, load, address, listen, ask, percentile } = require('./common');

const [dir, url, pid] = process.argv.slice(2);
const deviceplugin = load('kubelet.proto').v1beta1;
const podresources = load('podresources.proto').v1;
const MEM = 'aliyun.com/gpu-mem', COUNT = 'aliyun.com/gpu-count';
const CORE = 'aliyun.com/gpu-core.percentage';
const NODE = 'n1', UNITS = 16, WAIT_MS = 60000;
const plugins = path.join(dir, 'plugins');

// Polls until the result is truthy, and returns it.
async function until(what, condition) {
  const end = Date.now() + WAIT_MS;
  for (;;) {
    const value = await condition();
    if (value)
      return value;
    assert.ok(Date.now() < end, `never true: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

// Expects an error with this code and a matching message.
async function fails(promise, code, message) {
  const err = await promise.then(() => assert.fail('the call succeeded'), (e) => e);
  assert.strictEqual(err.code, code, err.message);
  assert.match(err.details, message);
}

// -- the API server --

async function api(method, at, body) {
  const reply = await fetch(url + at, { method,
    headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
  assert.ok(reply.ok, `${method} ${at}: ${reply.status}`);
  return reply.json();
}

// Creates a pod of this node with these limits and a promise on this card (undefined: none).
const promise = (name, resource, amount, card) => api('POST', '/kube-sim/load', {
  apiVersion: 'v1', kind: 'Pod',
  metadata: { name, namespace: 'default', uid: 'uid-' + name,
    annotations: card === undefined ? {} : { ALIYUN_COM_GPU_MEM_IDX: String(card),
      ALIYUN_COM_GPU_MEM_ASSIGNED: 'false',
      'scheduler.framework.gpushare.allocation': '{}',
      'gpushare/card-uuid': `GPU-${card}` } },
  spec: { nodeName: NODE, containers: [{ name: 'c', image: 'i',
    resources: { limits: { [resource]: String(amount) } } }] },
  status: { phase: 'Pending' } });
const erase = (name) => api('DELETE', `/api/v1/namespaces/default/pods/${name}`,
  { gracePeriodSeconds: 0 });
const annotations = async (name) =>
  (await api('GET', `/api/v1/namespaces/default/pods/${name}`)).metadata.annotations;

// -- the kubelet --

const pods = new Map(); // name -> { resource -> ids }: the checkpoint, which survives a restart
const devices = {};     // resource -> { id -> health }, the last list
const clients = {};     // resource -> { client, endpoint, stream }
let servers = [], registrations = 0;

// An entry for each id, as a kubelet has it.
const shown = (name) => ({ name, namespace: 'default', containers: [{ name: 'c',
  devices: Object.entries(pods.get(name)).flatMap(([resource_name, ids]) =>
    ids.map((id) => ({ resource_name, device_ids: [id] }))) }] });

// Calls GetDevicePluginOptions, responds to Register, then opens ListAndWatch.
async function register({ request: r }, answer) {
  const problem = r.version !== 'v1beta1' ? 'version' : ![MEM, COUNT, CORE].includes(r.resource_name)
    ? 'resource' : !fs.existsSync(path.join(plugins, r.endpoint)) ? 'endpoint' : null;
  if (problem) {
    answer({ code: grpc.status.INVALID_ARGUMENT, details: `${problem}: ${JSON.stringify(r)}` });
    return;
  }
  const client = new deviceplugin.DevicePlugin(address(plugins, r.endpoint),
    grpc.credentials.createInsecure());
  const options = await ask(client, 'GetDevicePluginOptions', {});
  assert.deepStrictEqual(options, r.options);
  assert.deepStrictEqual(options,
    { pre_start_required: false,
      get_preferred_allocation_available: r.resource_name !== CORE });
  answer(null, {});
  const stream = client.ListAndWatch({});
  const one = { client, endpoint: r.endpoint, stream };
  one.ended = new Promise((resolve) => stream.on('status', resolve));
  stream.on('error', () => {}); // the status event reports it
  stream.on('data', (list) => {
    const now = {};
    for (const d of list.devices) {
      assert.strictEqual(d.topology, null);
      assert.ok(!(d.ID in now), `${d.ID} comes twice`);
      now[d.ID] = d.health;
    }
    // A listed device is never removed.
    for (const id of Object.keys(devices[r.resource_name] ?? {}))
      assert.ok(id in now, `${id} is gone`);
    devices[r.resource_name] = now;
    one.listed = true;
  });
  clients[r.resource_name] = one;
  registrations++;
}

async function start() {
  for (const name of fs.readdirSync(plugins))
    if (name.endsWith('.sock'))
      fs.rmSync(path.join(plugins, name));
  const registration = new grpc.Server(), resources = new grpc.Server();
  registration.addService(deviceplugin.Registration.service, { Register: register });
  resources.addService(podresources.PodResourcesLister.service, {
    List: (call, answer) => answer(null, { pod_resources: [...pods.keys()].map(shown) }),
    Get({ request: r }, answer) {
      if (pods.has(r.pod_name))
        answer(null, { pod_resources: shown(r.pod_name) });
      else
        answer({ code: grpc.status.UNKNOWN,
          details: `pod ${r.pod_name} in namespace ${r.pod_namespace} not found` });
    },
  });
  servers = [registration, resources];
  await listen(resources, address(dir, 'podresources.sock'));
  await listen(registration, address(plugins, 'kubelet.sock'));
}

// Closes everything at once, as a killed process does.
function stop() {
  for (const resource of Object.keys(clients)) {
    clients[resource].stream.cancel();
    clients[resource].client.close();
    delete clients[resource];
  }
  for (const server of servers)
    server.forceShutdown();
}

const registered = () => until('all are registered', () =>
  [MEM, COUNT, CORE].every((r) => clients[r]?.listed));

const count = (resource, health) =>
  Object.values(devices[resource]).filter((h) => h === health).length;

function free(resource) {
  const held = new Set([...pods.values()].flatMap((p) => p[resource] ?? []));
  return Object.keys(devices[resource]).filter((id) =>
    devices[resource][id] === 'Healthy' && !held.has(id));
}

// Per container: the kubelet knows the pod, and calls the plugin.
async function prefer(resource, amount) {
  const { container_responses: all } = await ask(clients[resource].client,
    'GetPreferredAllocation', { container_requests: [
      { available_deviceIDs: free(resource), allocation_size: amount }] });
  assert.strictEqual(all.length, 1);
  return all[0].deviceIDs;
}

async function allocate(resource, ids) {
  const { container_responses: all } = await ask(clients[resource].client, 'Allocate',
    { container_requests: [{ devices_ids: ids }] });
  assert.strictEqual(all.length, 1);
  return all[0];
}

async function admit(name, resource, amount) {
  pods.set(name, {});
  const ids = await prefer(resource, amount);
  assert.strictEqual(ids.length, amount);
  const given = await allocate(resource, ids);
  pods.get(name)[resource] = ids;
  return { ids, given };
}

async function remove(name) {
  await erase(name);
  pods.delete(name);
}

const tags = (ids) => [...new Set(ids.map((id) => id.split('-')[0]))];
const env = (card, units) => ({ NVIDIA_VISIBLE_DEVICES: `GPU-${card}`,
  ALIYUN_COM_GPU_MEM_IDX: String(card), ALIYUN_COM_GPU_MEM_POD: String(units),
  ALIYUN_COM_GPU_MEM_CONTAINER: String(units), ALIYUN_COM_GPU_MEM_DEV: String(UNITS) });
const REFUSED = grpc.status.FAILED_PRECONDITION;

// -- steps --

const tag = {}; // card -> prefix of its ids
const steps = {
  async 'all resources register'() {
    await start();
    await registered();
    assert.strictEqual(Object.keys(devices[MEM]).length, 2 * UNITS);
    assert.strictEqual(Object.keys(devices[COUNT]).length, 2);
    assert.strictEqual(Object.keys(devices[CORE]).length, 200);
    assert.deepStrictEqual(await allocate(CORE, ['core-3', 'core-150']), { envs: {},
      mounts: [], devices: [], annotations: {}, cdi_devices: [] });
    assert.ok([MEM, COUNT].every((r) => count(r, 'Unhealthy') === 0));
    for (const id of Object.keys(devices[MEM]))
      assert.match(id, /^[0-9a-z]{7}-(0|[1-9][0-9]*)$/);
    assert.deepStrictEqual(tags(Object.keys(devices[MEM])).sort(),
      Object.keys(devices[COUNT]).sort());
  },
  async 'a pod gets ids and environment of its card'() {
    for (const card of [1, 0]) {
      const name = `on-${card}`;
      await promise(name, MEM, 3, card);
      const { ids, given } = await admit(name, MEM, 3);
      assert.strictEqual(tags(ids).length, 1);
      tag[card] = tags(ids)[0];
      assert.deepStrictEqual(given.envs, env(card, 3));
      assert.deepStrictEqual([given.mounts, given.devices, given.cdi_devices], [[], [], []]);
      await until('the annotation', async () =>
        (await annotations(name)).ALIYUN_COM_GPU_MEM_ASSIGNED === 'true');
    }
    assert.notStrictEqual(tag[0], tag[1]);
  },
  async 'ids of the wrong card are rejected'() {
    await promise('wrong', MEM, 3, 1);
    pods.set('wrong', {});
    const ids = await prefer(MEM, 3);
    assert.deepStrictEqual(tags(ids), [tag[1]]);
    const other = free(MEM).filter((id) => id.startsWith(tag[0])).slice(0, 3);
    await fails(allocate(MEM, other), REFUSED, new RegExp('^gpushare \\(wrong-card\\): id ' +
      `${other[0]} belongs to card GPU-0; container c of pod default/wrong is promised 3 of card 1 GPU-1$`));
    await remove('wrong');
  },
  async 'ids that another container holds are rejected'() {
    await promise('second', MEM, 3, 1);
    pods.set('second', {});
    await prefer(MEM, 3);
    await fails(allocate(MEM, pods.get('on-1')[MEM]), REFUSED,
      /^gpushare \(in-use\): .* is held by pod default\/on-1/);
    await remove('second');
  },
  async 'a pod without a promise is rejected'() {
    await promise('nobodys', MEM, 2);
    pods.set('nobodys', {});
    await fails(prefer(MEM, 2), REFUSED, /^gpushare \(no-promise\): /);
    await remove('nobodys');
  },
  async 'a shared card is not allocated as a whole'() {
    await promise('whole', COUNT, 1, 0);
    pods.set('whole', {});
    await fails(prefer(COUNT, 1), REFUSED, /^gpushare \(in-use\): /);
    await remove('whole');
  },
  async 'a whole card'() {
    await remove('on-0');
    await promise('whole', COUNT, 1, 0);
    const { ids, given } = await admit('whole', COUNT, 1);
    assert.deepStrictEqual(ids, [tag[0]]);
    assert.strictEqual(given.envs.NVIDIA_VISIBLE_DEVICES, 'GPU-0');
    await remove('whole');
  },
  async 'two containers in a request'() {
    const two = [{ devices_ids: ['a'] }, { devices_ids: ['b'] }];
    await fails(ask(clients[MEM].client, 'Allocate', { container_requests: two }),
      grpc.status.INVALID_ARGUMENT, /2 containers in one request/);
  },
  async 'a lost card is unhealthy, and comes back'() {
    const cards = path.join(dir, 'cards.json'), both = fs.readFileSync(cards, 'utf8');
    const one = JSON.parse(both);
    one.cards.pop();
    fs.writeFileSync(cards + '.new', JSON.stringify(one));
    fs.renameSync(cards + '.new', cards);
    await until('GPU-1 is unhealthy', () =>
      count(MEM, 'Unhealthy') === UNITS && count(COUNT, 'Unhealthy') === 1);
    fs.writeFileSync(cards + '.new', both);
    fs.renameSync(cards + '.new', cards);
    await until('GPU-1 is healthy', () =>
      count(MEM, 'Unhealthy') === 0 && count(COUNT, 'Unhealthy') === 0);
  },
  async 'the plugin registers again after a kubelet restart'() {
    for (let round = 0; round < 3; round++) {
      const before = registrations, known = Object.keys(devices[MEM]).sort();
      stop();
      delete devices[MEM];
      delete devices[COUNT];
      await start();
      await registered();
      assert.ok(registrations >= before + 2);
      assert.deepStrictEqual(Object.keys(devices[MEM]).sort(), known);
      const name = `after-${round}`;
      await promise(name, MEM, 2, 1);
      assert.deepStrictEqual((await admit(name, MEM, 2)).given.envs, env(1, 2));
    }
  },
  async 'a removed socket is created again'() {
    const before = registrations, old = clients[MEM];
    fs.rmSync(path.join(plugins, old.endpoint));
    await until('a registration', () => registrations > before && clients[MEM] !== old);
    await registered();
    const { code } = await old.ended;
    assert.ok([grpc.status.UNAVAILABLE, grpc.status.CANCELLED].includes(code), `${code}`);
    await promise('again', MEM, 1, 0);
    assert.deepStrictEqual((await admit('again', MEM, 1)).given.envs, env(0, 1));
  },
  async 'the plugin registers again when the kubelet ends its stream'() {
    const before = registrations, old = clients[MEM];
    old.stream.cancel();
    assert.strictEqual((await old.ended).code, grpc.status.CANCELLED);
    await until('a registration', () => registrations > before && clients[MEM] !== old);
    await registered();
  },
  async '24 pods, one after the other'() {
    const times = { prefer: [], allocate: [] };
    const took = async (list, promised) => {
      const began = process.hrtime.bigint();
      const result = await promised();
      list.push(Number(process.hrtime.bigint() - began) / 1e6);
      return result;
    };
    for (const name of [...pods.keys()])
      await remove(name);
    for (let i = 0; i < 24; i++)
      await promise(`many-${i}`, MEM, 1, i % 2);
    for (let i = 23; i >= 0; i--) {
      pods.set(`many-${i}`, {});
      const ids = await took(times.prefer, () => prefer(MEM, 1));
      const given = await took(times.allocate, () => allocate(MEM, ids));
      pods.get(`many-${i}`)[MEM] = ids;
      assert.deepStrictEqual(given.envs, env(i % 2, 1));
    }
    const held = [...pods.values()].flatMap((p) => p[MEM]);
    assert.strictEqual(new Set(held).size, 24);
    for (const [name, list] of Object.entries(times)) {
      list.sort((a, b) => a - b);
      console.log(`${name}: p50 ${percentile(list, 0.5)} ms, longest ${percentile(list, 1)} ms`);
    }
  },
  async 'a stop ends the streams with a status'() {
    const endpoints = Object.values(clients).map((c) => path.join(plugins, c.endpoint));
    process.kill(Number(pid), 'SIGTERM');
    for (const c of Object.values(clients)) {
      const { code, details } = await c.ended;
      assert.strictEqual(code, grpc.status.UNAVAILABLE);
      assert.match(details, /the device plugin is stopping/);
    }
    await until('the sockets are gone', () => !endpoints.some((e) => fs.existsSync(e)));
  },
};

async function run() {
  for (const [name, step] of Object.entries(steps)) {
    await step().catch((err) => { console.log(`FAILED: ${name}`); throw err; });
    console.log(`ok: ${name}`);
  }
  process.exit(0);
}

process.on('unhandledRejection', (err) => { console.error(err); process.exit(1); });
run();
