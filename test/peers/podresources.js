// SPDX-License-Identifier: Apache-2.0
//
// The kubelet's podresources API for test_peers.c, on DIR/podresources.sock.
//
//   podresources.js DIR
'use strict';
const { grpc, load, address, listen } = require('./common');

const pods = Array.from({ length: 15000 }, (_, i) => ({
  name: `pod-${i}`,
  namespace: 'default',
  containers: [{
    name: 'main',
    cpu_ids: [1, 2],
    devices: [{
      resource_name: 'aliyun.com/gpu-mem',
      device_ids: Array.from({ length: 8 }, (_, j) => `GPU-fef8089b-4820-abfc-e83e-94318197576e-_-${i * 8 + j}`),
      topology: { nodes: [{ ID: 0 }, { ID: 1 }] },
    }],
  }],
}));

const status = grpc.status;
const answers = {
  absent: { code: status.NOT_FOUND, details: 'pod "absent" nicht gefunden: 100% größe' },
  busy: { code: status.RESOURCE_EXHAUSTED, details: 'rejected by rate limit' },
  off: { code: status.FAILED_PRECONDITION, details: 'PodResourcesGet is off' },
  slow: null, // no response
};

const server = new grpc.Server({ 'grpc.max_send_message_length': -1 });
server.addService(load('podresources.proto').v1.PodResourcesLister.service, {
  List: (call, answer) => answer(null, { pod_resources: pods }),
  Get({ request: r }, answer) {
    const name = r.pod_name;
    if (name in answers)
      answers[name] && answer(answers[name]);
    else
      answer(null, { pod_resources: { ...pods[1], name, namespace: r.pod_namespace } });
  },
});
process.on('SIGTERM', () => process.exit(0));
listen(server, address(process.argv[2], 'podresources.sock')).then(() => console.log('ready'));
