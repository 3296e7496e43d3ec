// The row that the reference shows, with the fields that every row has, for tests.

import * as v from 'valibot';

import { Breakpoint } from '../../src/relay/breakpoint.js';

export const REQUIRED = {
  id: '8gcg2dnt',
  kind: 'debugpy',
  state: 'paused',
  cluster: 'default',
  name: 'train',
  title: 'train · pid 19983 @ 10.0.0.3',
  first_seen: 1795649607.045,
};

export const row = (change: object = {}) => v.parse(Breakpoint, { ...REQUIRED, ...change });
