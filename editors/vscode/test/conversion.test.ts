// A configuration of type "debugpy" keeps its meaning, and loses the token and the address.

import { expect, it } from 'vitest';

import { converted } from '../src/dap/conversion.js';

it('keeps what it says about tasks and stepping, and takes the way there out', () => {
  const given = {
    name: 'Ray',
    type: 'debugpy',
    request: 'attach',
    connect: { host: '127.0.0.1', port: 5678 },
    justMyCode: false,
    pathMappings: [{ localRoot: 'a', remoteRoot: 'b' }],
    preLaunchTask: 'build',
    rayRelay: { all: true, job: 'raysubmit_1', token: 's3cret' },
    rayRelayToken: 's3cret',
  };
  expect(converted(given, undefined)).toEqual({
    name: 'Ray',
    type: 'ray-relay',
    request: 'attach',
    justMyCode: false,
    pathMappings: [{ localRoot: 'a', remoteRoot: 'b' }],
    preLaunchTask: 'build',
    rayRelay: { all: true, job: 'raysubmit_1' },
  });
  expect(converted(given, 'prod')).toMatchObject({ relay: 'prod' });
  expect(JSON.stringify(converted(given, 'prod'))).not.toContain('s3cret');
});

it.each([
  { name: 'a', type: 'debugpy', request: 'attach', connect: { port: 5678 } },
  { name: 'a', type: 'debugpy', request: 'launch', rayRelay: {} },
  { name: 'a', type: 'node', request: 'attach', rayRelay: {} },
  { type: 'debugpy', request: 'attach', rayRelay: {} },
  'text',
  null,
])('leaves others alone: %j', (given) => {
  expect(converted(given, undefined)).toBeUndefined();
});
