// What of a hostile relay's messages reaches VS Code, and that usual messages pass unchanged.

import { describe, expect, it } from 'vitest';

import { namesLocalFile, passFromRelay, passToRelay } from '../src/dap/gate.js';

type Json = Record<string, unknown>;

const pass = (message: unknown, relay: string | undefined = 'prod') => passFromRelay(structuredClone(message), relay);
const event = (name: unknown, body?: unknown) => ({ seq: 1, type: 'event', event: name, body });
const response = (command: string, body: unknown) => ({ seq: 2, type: 'response', request_seq: 1, command, body });
const request = (command: string, given: unknown) => ({ seq: 7, type: 'request', command, arguments: given });
/** What a child session needs. */
const CHILD = { name: 'a', rayRelay: {} };
const child = (configuration: unknown) => request('startDebugging', { request: 'attach', configuration });

/** The message that VS Code gets. */
function passed(message: unknown, relay?: string): Json {
  const result = pass(message, relay);
  if (result.kind !== 'passed') throw new Error(result.kind);
  return result.message;
}

const configurationOf = (message: unknown) => (passed(message).arguments as { configuration: Json }).configuration;

describe('usual messages', () => {
  const source = { name: 'loss.py', path: '/home/ray/loss.py', sourceReference: 3 };
  it.each<[string, Json]>([
    ['an output', event('output', { category: 'stdout', output: 'a\n', source, line: 1 })],
    ['a stop', event('stopped', { reason: 'breakpoint', threadId: 1, text: '[x](command:y)' })],
    ['an end', event('terminated')],
    ['capabilities', response('initialize', { supportsConfigurationDoneRequest: true })],
    ['frames', response('stackTrace', { stackFrames: [{ id: 1, name: 'f', line: 9, column: 1, source }] })],
    ['a source', response('source', { content: 'path = "\\\\\\\\host"', mimeType: 'text/x-python' })],
    ['variables', response('variables', { variables: [{ name: 'path', value: '//host/share' }] })],
    ['a Windows path', event('loadedSource', { reason: 'new', source: { path: 'C:\\a\\b.py' } })],
    ['a relative path', event('loadedSource', { reason: 'new', source: { path: 'a/b.py' } })],
  ])('pass unchanged: %s', (_, message) => {
    expect(pass(message)).toEqual({ kind: 'passed', message });
  });

  it('pass unchanged: a child session', () => {
    const configuration = { name: 'rank 3', rayRelay: { breakpoint: 'abc' }, subProcessId: 4, relay: 'prod' };
    expect(passed(child(configuration))).toEqual(child(configuration));
  });
});

describe('what is no message', () => {
  it.each([
    undefined,
    null,
    1,
    'text',
    [],
    {},
    { type: 'other' },
    event('debugpyAttach', { host: 'evil', port: 1 }),
    event('debugpySockets', {}),
    event('process', { systemProcessId: 1 }),
    event('__proto__'),
    event('constructor'),
    event(['output']),
    event(undefined),
    event('output', { category: 'telemetry', output: 'x', data: { secret: 1 } }),
  ])('is dropped: %j', (message) => {
    expect(pass(message)).toEqual({ kind: 'dropped' });
  });
});

describe('a request of the relay', () => {
  it.each([
    ['a terminal', request('runInTerminal', { args: ['sh'], cwd: '/', kind: 'integrated' })],
    ['an unknown command', request('evaluate', { expression: '1' })],
    ['a launch', request('startDebugging', { request: 'launch', configuration: { program: '/bin/sh' } })],
    ['no arguments', request('startDebugging', undefined)],
    ['no configuration', request('startDebugging', { request: 'attach' })],
    ['a configuration that is text', request('startDebugging', { request: 'attach', configuration: 'x' })],
    ['a child without a name', child({ rayRelay: {} })],
    ['a child whose name is no text', child({ name: ['a'], rayRelay: {} })],
    ['a child without a task', child({ name: 'a' })],
    ['a child whose task is text', child({ name: 'a', rayRelay: 'abc' })],
    ['a child whose task is null', child({ name: 'a', rayRelay: null })],
  ])('is refused: %s', (_, message) => {
    const answer = { type: 'response', request_seq: 7, command: message.command, success: false };
    expect(pass(message)).toMatchObject({ kind: 'refused', answer });
  });

  it.each<[string, unknown]>([
    ['preLaunchTask', 'evil'],
    ['postDebugTask', 'evil'],
    ['debugServer', 4711],
    ['serverReadyAction', { action: 'openExternally', pattern: '.*' }],
    ['type', 'node'],
    ['request', 'launch'],
    ['program', '/bin/sh'],
    ['connect', { host: 'evil', port: 1 }],
    ['internalConsoleOptions', 'openOnSessionStart'],
    ['presentation', {}],
    ['__configurationTarget', 1],
    ['windows', { preLaunchTask: 'evil' }],
  ])('cannot set %s of a child session', (key, value) => {
    expect(configurationOf(child({ ...CHILD, [key]: value }))).toEqual({ ...CHILD, relay: 'prod' });
  });

  it('cannot lead a child session to another relay', () => {
    expect(configurationOf(child({ ...CHILD, relay: 'other' })).relay).toBe('prod');
    const unnamed = passFromRelay(child({ ...CHILD, relay: 'other' }), undefined);
    expect(unnamed).toHaveProperty('message.arguments.configuration', CHILD);
  });

  it('cannot change a prototype', () => {
    const text =
      '{"name": "a", "rayRelay": {}, "__proto__": {"preLaunchTask": "evil"}, "constructor": {"prototype": {"x": 1}}}';
    const configuration = configurationOf(child(JSON.parse(text)));
    expect(configuration).toStrictEqual({ ...CHILD, relay: 'prod' });
    expect(configuration.preLaunchTask).toBeUndefined();
    expect({}).not.toHaveProperty('x');
  });

  it('cannot add arguments beside the configuration', () => {
    const message = request('startDebugging', { request: 'attach', configuration: CHILD, noDebug: true });
    expect(passed(message).arguments).toEqual({ request: 'attach', configuration: { ...CHILD, relay: 'prod' } });
  });

  // VS Code replaces ${command:…} (runs it) and ${env:…} (sends it to the relay) in a child's configuration.
  it.each([
    { rayRelay: { breakpoint: '${command:workbench.action.quit}' } },
    { rayRelay: { '${input:x}': 1 } },
    { pathMappings: [{ localRoot: '${input:x}' }] },
    { workspaceFolder: '${env:AWS_SECRET_ACCESS_KEY}' },
  ])('is refused with a variable: %j', (change) => {
    expect(pass(child({ ...CHILD, ...change })).kind).toBe('refused');
  });

  it('may have a variable in a key that does not reach VS Code', () => {
    expect(configurationOf(child({ ...CHILD, program: '${env:HOME}' }))).toEqual({ ...CHILD, relay: 'prod' });
  });

  // A task's name is in it, which whoever starts the task chooses.
  it.each([
    ['${env:AWS_SECRET_ACCESS_KEY}', '$ {env:AWS_SECRET_ACCESS_KEY}'],
    ['a ${x} $${y}', 'a $ {x} $$ {y}'],
    ['$\n{x}', '$ {x}'],
    ['a\u202eb\nc', 'a\ufffdb c'],
    ['x'.repeat(121), `${'x'.repeat(119)}…`],
  ])('has the name of a child session shown without harm: %j', (name, expected) => {
    expect(configurationOf(child({ ...CHILD, name })).name).toBe(expected);
  });
});

describe('a message to the relay', () => {
  it('never offers a terminal', () => {
    const sent = request('initialize', { clientID: 'vscode', supportsRunInTerminalRequest: true });
    const expected = { clientID: 'vscode', supportsRunInTerminalRequest: false };
    expect(passToRelay(sent)).toEqual({ ...sent, arguments: expected });
    expect(sent.arguments).toHaveProperty('supportsRunInTerminalRequest', true);
  });

  it.each([request('attach', { supportsRunInTerminalRequest: true }), request('initialize', undefined), null])(
    'passes unchanged: %j',
    (message) => {
      expect(passToRelay(message)).toBe(message);
    },
  );
});

describe('namesLocalFile', () => {
  it.each(['/a.py', 'a.py', '../a.py', 'C:\\a.py', 'c:/a.py', '', '<string>', '/a b:c.py', './a:b'])('%j', (path) => {
    expect(namesLocalFile(path)).toBe(true);
  });
});
