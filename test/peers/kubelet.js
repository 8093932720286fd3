// SPDX-License-Identifier: Apache-2.0
//
// Plays the kubelet for test_peers.c: accepts a registration, then makes the calls that a
// kubelet makes, and malformed ones. Exit status 0: every response was as expected.
//
//   kubelet.js DIR
'use strict';
const assert = require('assert');
const { grpc, load, address, listen, ask, percentile } = require('./common');

const dir = process.argv[2];
const api = load('kubelet.proto').v1beta1;
const insecure = grpc.credentials.createInsecure();
const open = (Service, options) =>
  new Service(address(dir, 'plugin.sock'), insecure, options);
const allocate = (client, ids, options) =>
  ask(client, 'Allocate', { container_requests: [{ devices_ids: ids }] }, options);

// Expects an error with this code and a matching message.
async function fails(promise, code, message) {
  const err = await promise.then(() => assert.fail('the call succeeded'), (e) => e);
  assert.strictEqual(err.code, code, err.message);
  assert.match(err.details, message);
}

// A ListAndWatch: next() resolves to the next list, ended to the status.
function watch(client) {
  const lists = [], waiting = [];
  const call = client.ListAndWatch({});
  const stream = { call, next: () => new Promise((resolve) =>
    lists.length ? resolve(lists.shift()) : waiting.push(resolve)) };
  call.on('data', (list) => waiting.length ? waiting.shift()(list) : lists.push(list));
  call.on('error', () => {});
  stream.ended = new Promise((resolve) => call.on('status', resolve));
  return stream;
}

const plugin = open(api.DevicePlugin);
let streams;

const steps = {
  async 'list and watch, twice'() {
    streams = [watch(plugin), watch(plugin)];
    for (const s of streams) {
      const { devices } = await s.next();
      assert.deepStrictEqual(devices.map((d) => [d.ID, d.health]),
        [['card-0', 'Healthy'], ['card-1', 'Healthy']]);
      assert.strictEqual(devices[0].topology, null);
      assert.strictEqual(devices[1].topology, null);
    }
  },
  async 'a health change reaches both streams'() {
    await allocate(plugin, ['flip']);
    for (const s of streams) {
      const { devices } = await s.next();
      assert.deepStrictEqual(devices.map((d) => d.health), ['Unhealthy', 'Healthy']);
    }
  },
  async 'allocate'() {
    const { container_responses: [r] } = await allocate(plugin, ['card-0', 'card-1']);
    assert.deepStrictEqual(r.envs, { IDS: 'card-0,card-1', WORDS: 'größe=1' });
    assert.deepStrictEqual(r.annotations, { note: 'x' });
    assert.deepStrictEqual(r.mounts,
      [{ container_path: '/c', host_path: '/h', read_only: true }]);
    assert.deepStrictEqual(r.devices,
      [{ container_path: '/dev/a', host_path: '/dev/b', permissions: 'rw' }]);
    assert.deepStrictEqual(r.cdi_devices, [{ name: 'vendor.com/gpu=0' }]);
  },
  async 'allocate fails with a message'() {
    await fails(allocate(plugin, ['card-9']), grpc.status.FAILED_PRECONDITION,
      /^card-9 ist für niemanden: 100%$/);
  },
  async 'preferred allocation'() {
    const { container_responses: [r] } = await ask(plugin, 'GetPreferredAllocation', {
      container_requests: [{ available_deviceIDs: ['a', 'b', 'c', 'd'],
        must_include_deviceIDs: ['c'], allocation_size: 3 }] });
    assert.deepStrictEqual(r.deviceIDs, ['c', 'a', 'b']);
  },
  async 'pre-start'() {
    await ask(plugin, 'PreStartContainer', { devices_ids: ['card-0'] });
    await fails(ask(plugin, 'PreStartContainer', { devices_ids: [] }),
      grpc.status.INVALID_ARGUMENT, /no ids/);
  },
  async 'unknown method and service'() {
    await fails(ask(plugin, 'NoSuchMethod', {}), 12,
      /^unknown method \/v1beta1\.DevicePlugin\/NoSuchMethod$/);
    await fails(allocate(open(api.NoSuchService), ['a']), 12, /^unknown method/);
  },
  async 'a message that cannot be decoded'() {
    const Raw = grpc.makeClientConstructor({ Allocate: {
      path: '/v1beta1.DevicePlugin/Allocate', requestStream: false, responseStream: false,
      requestSerialize: (b) => b, responseDeserialize: (b) => b } }, 'Raw');
    await fails(ask(open(Raw), 'Allocate', Buffer.from([0x0a, 0xff])),
      grpc.status.INVALID_ARGUMENT, /malformed message of type/);
    await fails(ask(open(Raw), 'Allocate', Buffer.from('0a030a01ff', 'hex')),
      grpc.status.INVALID_ARGUMENT, /invalid UTF-8/);
  },
  async 'a request of 5 MiB'() {
    await fails(allocate(plugin, ['x'.repeat(5 << 20)]), grpc.status.RESOURCE_EXHAUSTED,
      /at most 4194304 are accepted/);
  },
  async '100,000 free ids'() {
    const ids = Array.from({ length: 100000 }, (_, i) => 'some-id-' + i);
    const { container_responses: [r] } = await ask(plugin, 'GetPreferredAllocation', {
      container_requests: [{ available_deviceIDs: ids, allocation_size: 2 }] });
    assert.deepStrictEqual(r.deviceIDs, ids.slice(0, 2));
  },
  async 'a deadline'() {
    await fails(allocate(plugin, ['wait'], { deadline: Date.now() + 50 }),
      grpc.status.DEADLINE_EXCEEDED, /./);
  },
  async 'a cancelled call'() {
    const before = Number((await allocate(plugin, ['overs'])).container_responses[0].envs.N);
    let call;
    const end = new Promise((resolve) => {
      call = plugin.Allocate({ container_requests: [{ devices_ids: ['wait'] }] },
        (err) => resolve(err));
    });
    await allocate(plugin, ['waiting']); // ends the waiting call
    call.cancel();
    assert.strictEqual((await end).code, grpc.status.CANCELLED);
    let now;
    do {
      now = Number((await allocate(plugin, ['overs'])).container_responses[0].envs.N);
    } while (now === before);
    assert.strictEqual(now, before + 1);
  },
  async 'the socket path as authority'() {
    await allocate(open(api.DevicePlugin,
      { 'grpc.default_authority': dir + '/plugin.sock' }), ['card-0']);
  },
  async 'compressed messages are rejected'() {
    await fails(allocate(open(api.DevicePlugin,
      { 'grpc.default_compression_algorithm': 2 }), ['card-0']), 12, /compressed/);
  },
  async 'large headers do no harm'() {
    const metadata = new grpc.Metadata();
    metadata.set('x-large', 'y'.repeat(40000));
    await ask(open(api.DevicePlugin), 'PreStartContainer', { devices_ids: ['a'] }, {}, metadata);
    await allocate(plugin, ['card-0']);
  },
  async 'frequent pings'() {
    const client = open(api.DevicePlugin, { 'grpc.keepalive_time_ms': 50,
      'grpc.keepalive_timeout_ms': 20000, 'grpc.keepalive_permit_without_calls': 1 });
    const s = watch(client);
    await s.next();
    await Promise.race([s.ended.then((status) => assert.fail(status.details)),
      new Promise((resolve) => setTimeout(resolve, 1500))]);
    s.call.cancel();
    await s.ended;
  },
  async '1,000 calls, one after the other'() {
    const times = [];
    for (let i = 0; i < 1000; i++) {
      const start = process.hrtime.bigint();
      await allocate(plugin, ['card-0']);
      times.push(Number(process.hrtime.bigint() - start) / 1e6);
    }
    times.sort((a, b) => a - b);
    console.log(`Allocate: p50 ${percentile(times, 0.5)} ms, p99 ${percentile(times, 0.99)} ms`);
  },
  async '1,000 calls, 50 at a time'() {
    const start = Date.now();
    for (let i = 0; i < 20; i++)
      await Promise.all(Array.from({ length: 50 }, () => allocate(plugin, ['card-0'])));
    console.log(`50 at a time: ${((Date.now() - start)).toFixed(0)} us a call`);
  },
  async 'a stop ends the streams with a status'() {
    await allocate(plugin, ['stop']);
    for (const s of streams) {
      const status = await s.ended;
      assert.strictEqual(status.code, grpc.status.UNAVAILABLE);
      assert.match(status.details, /server is stopping/);
    }
    // The server ends a moment after its streams.
    for (const until = Date.now() + 20000; Date.now() < until;) {
      const failure = await allocate(plugin, ['card-0']).then(() => null, (e) => e);
      if (failure) {
        assert.strictEqual(failure.code, grpc.status.UNAVAILABLE);
        return;
      }
    }
    assert.fail('calls succeed after a stop');
  },
};

async function run() {
  for (const [name, step] of Object.entries(steps)) {
    let timer;
    await Promise.race([step(), new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error('not finished after 120 s')), 120000);
    })]).catch((err) => { console.log(`FAILED: ${name}`); throw err; });
    clearTimeout(timer);
    console.log(`ok: ${name}`);
  }
  process.exit(0);
}

process.on('unhandledRejection', (err) => { console.error(err); process.exit(1); });

const server = new grpc.Server();
server.addService(api.Registration.service, {
  // As the kubelet does: calls GetDevicePluginOptions before it responds to Register.
  Register({ request: r }, answer) {
    if (r.version !== 'v1beta1' || r.resource_name !== 'aliyun.com/gpu-mem' ||
        r.endpoint !== 'plugin.sock') {
      answer({ code: grpc.status.INVALID_ARGUMENT, details: `no: ${JSON.stringify(r)}` });
      return;
    }
    ask(plugin, 'GetDevicePluginOptions', {}).then((options) => {
      assert.deepStrictEqual(options, r.options);
      answer(null, {});
      return run();
    });
  },
});
listen(server, address(dir, 'kubelet.sock')).then(() => console.log('ready'));
