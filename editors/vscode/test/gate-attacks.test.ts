// Attacks of a hostile relay that a review has found, each of which reached VS Code before.

import { describe, expect, it } from 'vitest';

import { SessionBudget } from '../src/dap/budget.js';
import { namesLocalFile, passFromRelay } from '../src/dap/gate.js';

const event = (name: string, body?: object) => ({ seq: 1, type: 'event', event: name, ...(body && { body }) });

it('the end of a session does not start another: VS Code would take any configuration of that name', () => {
  const passed = passFromRelay(event('terminated', { restart: { x: 1 } }), 'prod');
  expect(passed).toEqual({ kind: 'passed', message: event('terminated') });
  expect(JSON.stringify(passed)).not.toContain('restart');
});

it.each(['new', 'removed', undefined])('a breakpoint is not %s because of a relay', (reason) => {
  const breakpoint = { id: 1, verified: true, source: { path: '/home/ann/a.py' }, line: 3 };
  expect(passFromRelay(event('breakpoint', { reason, breakpoint }), 'prod').kind).toBe('dropped');
  expect(passFromRelay(event('breakpoint', { reason: 'changed', breakpoint }), 'prod').kind).toBe('passed');
});

it.each([
  '/dev/ptmx',
  '/dev/./ptmx',
  '/x/../dev/ptmx',
  '/net/evil.example/x.py',
  '/proc/self/environ',
  '/sys/a',
  '\\??\\UNC\\evil\\x',
])('%s is no file to be opened', (path) => {
  expect(namesLocalFile(path)).toBe(false);
});

it.each(['/home/dev/a.py', '/devices/a.py', '/network/a.py', '/a/dev/b.py', 'C:\\dev\\a.py', 'a.py'])(
  '%s is a file',
  (path) => {
    expect(namesLocalFile(path)).toBe(true);
  },
);

describe('sessions that a relay asks for', () => {
  const child = {
    seq: 9,
    type: 'request',
    command: 'startDebugging',
    arguments: { request: 'attach', configuration: { name: 'x', rayRelay: {} } },
  };

  it('are refused, not ignored, above a limit', () => {
    expect(passFromRelay(child, 'prod', () => true).kind).toBe('passed');
    expect(passFromRelay(child, 'prod', () => false)).toMatchObject({ kind: 'refused', answer: { request_seq: 9 } });
  });

  it('are at most 256, of all relays and depths together', () => {
    expect(new SessionBudget().mayOpen(255, 0)).toBe(true);
    expect(new SessionBudget().mayOpen(256, 0)).toBe(false);
  });

  it('are at most 100 within ten seconds', () => {
    const budget = new SessionBudget();
    const opened = (now: number) => Array.from({ length: 150 }, () => budget.mayOpen(0, now)).filter(Boolean).length;
    expect(opened(0)).toBe(100);
    expect(opened(9_000)).toBe(0);
    expect(opened(10_001)).toBe(100);
  });
});
