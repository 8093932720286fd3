// SPDX-License-Identifier: Apache-2.0
'use strict';
const path = require('path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

exports.grpc = grpc;

// Loads a .proto file of this folder.
exports.load = (name) => grpc.loadPackageDefinition(loader.loadSync(
  path.join(__dirname, name), { keepCase: true, longs: Number, defaults: true }));

exports.address = (dir, name) => 'unix://' + path.resolve(dir, name);

exports.listen = (server, address) => new Promise((resolve, reject) =>
  server.bindAsync(address, grpc.ServerCredentials.createInsecure(),
    (err) => err ? reject(err) : resolve()));

// A call as a promise.
exports.ask = (client, method, message, options = {}, metadata = new grpc.Metadata()) =>
  new Promise((resolve, reject) => client[method](message, metadata, options,
    (err, reply) => err ? reject(err) : resolve(reply)));

exports.percentile = (sorted, p) => sorted[Math.floor((sorted.length - 1) * p)].toFixed(3);
