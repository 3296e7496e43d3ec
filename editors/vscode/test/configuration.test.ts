// Debug configurations: what is started, what is refused, and what is filled in.

import { describe, expect, it } from 'vitest';

import {
  attachConfiguration,
  problemOf,
  UnusableName,
  withDefaults,
  type Configuration,
} from '../src/dap/configuration.js';

const PLAIN: Configuration = { type: 'ray-relay', request: 'attach', name: 'Ray', rayRelay: { all: true } };

describe('attachConfiguration', () => {
  it('names the relay and the task', () => {
    expect(attachConfiguration('prod', 'train', { breakpoint: '8gcg2dnt' })).toEqual({
      type: 'ray-relay',
      request: 'attach',
      name: 'train',
      relay: 'prod',
      rayRelay: { breakpoint: '8gcg2dnt' },
    });
  });

  it('has no relay if none is named', () => {
    expect(attachConfiguration(undefined, 'Ray', { all: true })).toStrictEqual(PLAIN);
  });

  it('can be used', () => {
    expect(problemOf(attachConfiguration('prod', 'Ray', { all: 'mine' }))).toBeUndefined();
  });

  // VS Code replaces ${env:…} and ${command:…} in what an extension starts, and the relay names tasks and jobs.
  describe.each(['${env:AWS_SECRET_ACCESS_KEY}', '${command:workbench.action.quit}', 'a ${input:x}', '$${x}'])(
    'with the variable %s',
    (text) => {
      it('breaks it in the name of the session, which is only shown', () => {
        const configuration = attachConfiguration('prod', text, { all: true });
        expect(configuration.name).toBe(text.replace('${', '$ {'));
        expect(JSON.stringify(configuration)).not.toContain('${');
      });

      it.each(['breakpoint', 'task', 'job', 'cluster'])('refuses it as the %s of the selector', (key) => {
        expect(() => attachConfiguration('prod', 'Ray', { [key]: text })).toThrow(UnusableName);
      });

      it('refuses it as the name of the relay', () => {
        expect(() => attachConfiguration(text, 'Ray', { all: true })).toThrow(UnusableName);
      });

      it('does not repeat it in the error', () => {
        expect(() => attachConfiguration('prod', 'Ray', { task: text })).toThrow(
          new UnusableName(
            'VS Code takes ${…} for a variable: a relay, task or job with that in its name cannot be named.',
          ),
        );
      });
    },
  );

  it('takes a dollar and braces that are no variable', () => {
    expect(attachConfiguration('prod', '$x {y}', { task: '{$}' })).toMatchObject({
      name: '$x {y}',
      rayRelay: { task: '{$}' },
    });
  });
});

describe('problemOf', () => {
  it('finds none in the arguments of an attach', () => {
    expect(problemOf({ ...PLAIN, relay: 'prod', justMyCode: false, pathMappings: [] })).toBeUndefined();
  });

  it('finds none in what was completed', () => {
    expect(problemOf(withDefaults(PLAIN, '/home/me', false))).toBeUndefined();
  });

  it.each(['launch', '', 'Attach'])('refuses the request %j', (request) => {
    expect(problemOf({ ...PLAIN, request })).toContain('"request": "attach"');
  });

  it.each([
    ['debugServer', 4711],
    ['debugServer', 0],
    ['listen', { port: 5678 }],
    ['processId', 1],
    ['processId', null],
  ])('refuses %s: %j', (key, value) => {
    expect(problemOf({ ...PLAIN, [key]: value })).toContain(`"${key}"`);
  });

  it.each([1, null, {}, ['prod'], true])('refuses the relay %j, which is no name', (relay) => {
    expect(problemOf({ ...PLAIN, relay })).toContain('"relay"');
  });
});

describe('completed', () => {
  it('fills in what the Python Debugger extension does', () => {
    expect(withDefaults(PLAIN, '/home/me', false)).toEqual({
      ...PLAIN,
      workspaceFolder: '/home/me',
      justMyCode: true,
      showReturnValue: true,
      redirectOutput: true,
      debugOptions: ['RedirectOutput', 'ShowReturnValue'],
      clientOS: 'unix',
    });
  });

  it('has no folder if none is open', () => {
    expect(withDefaults(PLAIN, undefined, false)).not.toHaveProperty('workspaceFolder');
  });

  it.each([
    [true, 'windows'],
    [false, 'unix'],
  ])('says on Windows (%s) that the client is %s', (isWindows, clientOS) => {
    expect(withDefaults({ ...PLAIN, clientOS: 'other' }, undefined, isWindows).clientOS).toBe(clientOS);
  });

  it.each<[string, Partial<Configuration>, string[]]>([
    ['redirectOutput', { redirectOutput: false }, ['ShowReturnValue']],
    ['showReturnValue', { showReturnValue: false }, ['RedirectOutput']],
    ['justMyCode', { justMyCode: false }, ['RedirectOutput', 'ShowReturnValue', 'DebugStdLib']],
    ['debugOptions', { debugOptions: ['Django'] }, ['Django']],
  ])('respects %s', (key, change, debugOptions) => {
    const configuration = withDefaults({ ...PLAIN, ...change }, undefined, false);
    expect(configuration[key]).toEqual(change[key]);
    expect(configuration.debugOptions).toEqual(debugOptions);
  });

  it('keeps what the user wrote', () => {
    const given = { ...PLAIN, workspaceFolder: '/mine', relay: 'prod', rules: [{ path: '/x', include: false }] };
    expect(withDefaults(given, '/home/me', false)).toMatchObject(given);
  });

  it('does not change the configuration it is given', () => {
    const given = Object.freeze({ ...PLAIN });
    withDefaults(given, '/home/me', true);
    expect(given).toEqual(PLAIN);
  });
});
