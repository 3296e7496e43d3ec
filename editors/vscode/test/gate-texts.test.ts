// Texts of a hostile relay that VS Code shows in notifications: no link, which may run a command.

import { describe, expect, it } from 'vitest';

import { passFromRelay } from '../src/dap/gate.js';

type Json = Record<string, unknown>;

const LINK = '[Sign in](command:evil)';
const BROKEN = '[Sign in] (command:evil)';

const response = (body: unknown, more: Json = {}) => ({
  seq: 2,
  type: 'response',
  request_seq: 1,
  command: 'attach',
  success: false,
  ...more,
  body,
});
const progress = (event: string, body: Json) => ({ seq: 1, type: 'event', event, body });

/** The message that VS Code gets. */
function passed(message: unknown): Json {
  const result = passFromRelay(structuredClone(message), 'prod');
  if (result.kind !== 'passed') throw new Error(result.kind);
  return result.message;
}

const errorOf = (error: unknown) => (passed(response({ error })).body as { error: Json }).error;
const textOf = (error: unknown) => (errorOf(error).variables as Json).text;

describe('an error of the relay', () => {
  it('has no link beside its text, and sends no telemetry', () => {
    const error = { id: 1, format: 'no', url: 'command:evil', urlLabel: 'Fix', sendTelemetry: true, showUser: true };
    const expected = { id: 1, showUser: true, format: '{text}', variables: { text: 'no' } };
    expect(errorOf(error)).toStrictEqual(expected);
  });

  it('is not shown if it says so', () => {
    expect(errorOf({ id: 1, format: 'no', showUser: false }).showUser).toBe(false);
  });

  it.each<[string, Json, string]>([
    ['its variables', { format: '{a} of {b}', variables: { a: '1', b: '2' } }, '1 of 2'],
    ['a variable twice', { format: '{a}{a}', variables: { a: '1' } }, '11'],
    ['braces for which there is no variable', { format: '{a} {b}', variables: { b: 'x' } }, '{a} x'],
    ['braces for a variable that is no text', { format: '{a}', variables: { a: ['x'] } }, '{a}'],
    ['braces where variables are no object', { format: '{a}', variables: 'x' }, '{a}'],
    ['braces for what every object has', { format: '{constructor} {toString}' }, '{constructor} {toString}'],
    ['braces of a variable as they are', { format: '{a}', variables: { a: '{b}', b: 'x' } }, '{b}'],
    ['nothing where the format is no text', { format: ['x'], variables: { a: '1' } }, ''],
    ['nothing without a format', {}, ''],
  ])('has in its text %s', (_, error, expected) => {
    expect(textOf({ id: 1, ...error })).toBe(expected);
  });

  it.each<[string, Json]>([
    ['in its text', { format: LINK }],
    ['in a variable', { format: '{a}', variables: { a: LINK } }],
    ['in the name of a variable', { format: `{${LINK}}` }],
    ['made of two variables', { format: '{a}{b}', variables: { a: '[Sign in]', b: '(command:evil)' } }],
    ['made of its text and a variable', { format: '[Sign in{a}command:evil)', variables: { a: '](' } }],
    ['made of single characters', { format: '[Sign in{a}{b}command:evil)', variables: { a: ']', b: '(' } }],
    ['made by an empty variable', { format: '[Sign in]{a}(command:evil)', variables: { a: '' } }],
  ])('has no link %s', (_, error) => {
    const shown = JSON.stringify(errorOf({ id: 1, showUser: true, ...error }));
    expect(shown).toContain('] (command:evil)');
    expect(shown).not.toContain('](');
  });

  it('has no link in the message of its response', () => {
    expect(passed(response(undefined, { message: LINK })).message).toBe(BROKEN);
  });
});

describe('progress of the relay', () => {
  it.each(['progressStart', 'progressUpdate', 'progressEnd'])('has no link in the texts of %s', (event) => {
    const body = { progressId: 'a', title: LINK, message: LINK, percentage: 5 };
    expect(passed(progress(event, body)).body).toEqual({ ...body, title: BROKEN, message: BROKEN });
  });
});

describe('a value that is no text', () => {
  const link = ['[x](command:y)'];

  it.each([
    { seq: 1, type: 'response', request_seq: 1, success: false, command: 'attach', message: link },
    { seq: 1, type: 'response', request_seq: 1, success: false, command: 'attach', body: { error: link } },
    { seq: 1, type: 'event', event: 'progressStart', body: { progressId: 'a', title: link, message: link } },
    { seq: 1, type: 'event', event: 'output', body: { category: 'important', output: link } },
  ])('is no link either: %j', (message) => {
    expect(JSON.stringify(passFromRelay(message, 'prod'))).not.toContain('](command:');
  });
});

it('an important output has no link, and any other stays as it is', () => {
  const output = (category: string) => ({
    seq: 1,
    type: 'event',
    event: 'output',
    body: { category, output: '[x](a)' },
  });
  expect(JSON.stringify(passFromRelay(output('important'), 'prod'))).toContain('[x] (a)');
  expect(JSON.stringify(passFromRelay(output('stdout'), 'prod'))).toContain('[x](a)');
});
