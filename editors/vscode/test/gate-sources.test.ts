// Sources that a hostile relay names: VS Code must open no share, and no URI of another kind.

import { describe, expect, it } from 'vitest';

import { namesLocalFile, passFromRelay } from '../src/dap/gate.js';

type Json = Record<string, unknown>;

const HOSTILE_PATHS = [
  '\\\\evil\\share\\a.py',
  '//evil/share/a.py',
  '\\/evil/share/a.py',
  '/\\evil\\share\\a.py',
  '\\\\?\\UNC\\evil\\share\\a.py',
  '\\\\.\\pipe\\evil',
  'C:\\\\evil\\share',
  'c://evil/share',
  'vscode://ms.python/evil',
  'vscode-remote://ssh-remote+evil/a.py',
  'command:workbench.action.quit',
  'http://evil/a.py',
  'HTTPS://evil/a.py',
  'file:///etc/passwd',
  'file://evil/share/a.py',
  'FILE:evil',
  'untitled:a.py',
  'a+b.c-d:x',
];

const event = (name: string, body: Json) => ({ seq: 1, type: 'event', event: name, body });
const response = (command: string, body: Json) => ({ seq: 2, type: 'response', request_seq: 1, command, body });

/** Each place of the protocol that has a source. */
const PLACES: [string, (source: Json) => Json][] = [
  [
    'stackTrace',
    (source) =>
      response('stackTrace', {
        stackFrames: [
          { id: 1, name: 'f' },
          { id: 2, source },
        ],
      }),
  ],
  ['scopes', (source) => response('scopes', { scopes: [{ name: 'Locals', source }] })],
  ['setBreakpoints', (source) => response('setBreakpoints', { breakpoints: [{ verified: true, source }] })],
  ['loadedSources', (source) => response('loadedSources', { sources: [{ path: '/a.py' }, source] })],
  ['locations', (source) => response('locations', { source, line: 1 })],
  ['gotoTargets', (source) => response('gotoTargets', { targets: [{ id: 1, label: 'a', line: 1, source }] })],
  ['output', (source) => event('output', { output: 'a', source, line: 1 })],
  ['loadedSource', (source) => event('loadedSource', { reason: 'new', source })],
  ['breakpoint', (source) => event('breakpoint', { reason: 'changed', breakpoint: { id: 1, source } })],
  ['the sources of a source', (source) => event('output', { output: 'a', source: { path: '/a', sources: [source] } })],
];

/** The text of what VS Code gets. */
function passed(message: Json): string {
  const result = passFromRelay(message, 'prod');
  if (result.kind !== 'passed') throw new Error(result.kind);
  return JSON.stringify(result.message);
}

describe('the path of a source', () => {
  it.each(HOSTILE_PATHS)('%s names no local file', (path) => {
    expect(namesLocalFile(path)).toBe(false);
  });

  describe.each(PLACES)('in %s', (_, messageOf) => {
    it.each(HOSTILE_PATHS)('does not pass: %s', (path) => {
      const source = { name: 'a.py', path, sourceReference: 5 };
      const text = passed(messageOf(source));
      expect(text).not.toContain(JSON.stringify(path));
      expect(text).toContain('"sourceReference":5');
    });

    it('passes if it is local', () => {
      const source = { name: 'a.py', path: '/home/ray/a.py', sourceReference: 5 };
      expect(passed(messageOf(source))).toBe(JSON.stringify(messageOf(source)));
    });
  });

  it.each<{ path: unknown }>([
    { path: 1 },
    { path: null },
    { path: {} },
    { path: ['//evil/share'] },
    { path: { toString: '//evil' } },
  ])('does not pass if it is no text: %j', ({ path }) => {
    expect(passed(event('loadedSource', { reason: 'new', source: { name: 'a.py', path } }))).not.toContain('path');
  });

  // DisassembledInstruction has its source in "location". VS Code reads it when the view of instructions opens.
  it.each(HOSTILE_PATHS)('does not pass in disassemble: %s', (path) => {
    const instructions = [{ address: '0x1', instruction: 'nop', location: { name: 'a.py', path }, line: 1 }];
    expect(passed(response('disassemble', { instructions }))).not.toContain(JSON.stringify(path));
  });

  it('passes in disassemble if it is local', () => {
    const location = { name: 'a.py', path: '/home/ray/a.py' };
    const message = response('disassemble', { instructions: [{ address: '0x1', instruction: 'nop', location }] });
    expect(passed(message)).toBe(JSON.stringify(message));
  });

  // VS Code takes the name of a source as its path if it has none.
  it.each(HOSTILE_PATHS)('does not pass as its name: %s', (name) => {
    expect(passed(event('loadedSource', { reason: 'new', source: { name } }))).not.toContain(JSON.stringify(name));
  });

  it.each<[string, Json, Json]>([
    ['a name in place of a hostile path', { path: '//evil/a', name: '//evil/a' }, { name: '_evil_a' }],
    ['a name in place of a path that is empty', { path: '', name: 'vscode://a' }, { path: '', name: 'vscode_a' }],
    ['a name that is no text', { name: ['//evil/a'], sourceReference: 5 }, { sourceReference: 5 }],
  ])('has harmless: %s', (_, source, expected) => {
    const message = event('loadedSource', { reason: 'new', source: expected });
    expect(passed(event('loadedSource', { reason: 'new', source }))).toBe(JSON.stringify(message));
  });

  it.each(['<string>', 'a.py', '/tmp/a.py', 'Cell [1] of notebook'])('leaves the name %s as it is', (name) => {
    const message = event('loadedSource', { reason: 'new', source: { name, sourceReference: 5 } });
    expect(passed(message)).toBe(JSON.stringify(message));
  });

  it('leaves a name beside a local path as it is', () => {
    const source = { name: 'a:b//c', path: '/a.py' };
    const message = event('loadedSource', { reason: 'new', source });
    expect(passed(message)).toBe(JSON.stringify(message));
  });
});

describe('a deep message', () => {
  it('passes', () => {
    let body: Json = {};
    for (let depth = 0; depth < 2_000; depth += 1) body = { source: body };
    expect(passFromRelay(event('output', body), 'prod').kind).toBe('passed');
  });

  it('has no hostile path where VS Code looks', () => {
    const frames = Array.from({ length: 1_000 }, (_, id) => ({ id, source: { path: '//evil/share' } }));
    expect(passed(response('stackTrace', { stackFrames: frames }))).not.toContain('evil');
  });
});
