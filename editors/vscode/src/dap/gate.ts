// What of a relay's messages may reach VS Code. Pure.
//
// A relay, or a worker behind it, may be hostile. VS Code runs what some messages say (a terminal command, a task
// before a debug session), replaces variables in configurations, sends some messages to telemetry, opens sources by URI
// or UNC path, and makes links of what notifications say. None of that passes.

import { posix } from 'node:path';

import * as v from 'valibot';

import { oneLine, withoutLinks, withoutVariables } from '../text.js';

/** DAP's events (specification 1.71), but `process`, whose id VS Code might act on. All others belong to extensions. */
const EVENTS = new Set([
  'breakpoint',
  'capabilities',
  'continued',
  'exited',
  'initialized',
  'invalidated',
  'loadedSource',
  'memory',
  'module',
  'output',
  'progressEnd',
  'progressStart',
  'progressUpdate',
  'stopped',
  'terminated',
  'thread',
]);

/** Keys of a child session's configuration that may come from the relay. */
const CHILD_KEYS = [
  'name',
  'rayRelay',
  'subProcessId',
  'pathMappings',
  'justMyCode',
  'rules',
  'redirectOutput',
  'showReturnValue',
  'debugOptions',
  'subProcess',
  'django',
  'jinja',
  'workspaceFolder',
  'clientOS',
  'steppingResumesAllThreads',
];

/** Where DAP has sources. */
const SOURCE_KEYS = new Set(['source', 'sources', 'location']);

/** Devices, which may never answer, and mounts, which may dial a host. */
const NO_FILES = /^\/(dev|proc|sys|net)(\/|$)/;

/** Nesting to which sources are looked for: the deepest are those of a source's own sources. */
const MAX_SOURCE_DEPTH = 12;

const Fields = v.record(v.string(), v.unknown());
type Fields = v.InferOutput<typeof Fields>;

const StartDebugging = v.object({
  request: v.literal('attach'),
  configuration: v.intersect([Fields, v.object({ name: v.string(), rayRelay: Fields })]),
});

/** Longest name of a child session. */
const MAX_NAME = 120;

/** What becomes of a message from the relay. `refused` is the answer to a request that is not carried out. */
export type Passed = { kind: 'passed'; message: Fields } | { kind: 'refused'; answer: Fields } | { kind: 'dropped' };

/** Checks `message` of a session whose configuration says `relay`; `mayOpen`: whether it may open another session. */
export function passFromRelay(
  message: unknown,
  relay: string | undefined,
  mayOpen: () => boolean = () => true,
): Passed {
  if (!v.is(Fields, message)) return { kind: 'dropped' };
  switch (message.type) {
    case 'event':
      return passEvent(message);
    case 'response':
      return { kind: 'passed', message: cleanResponse(message) };
    case 'request':
      return passRequest(message, relay, mayOpen);
    default:
      return { kind: 'dropped' };
  }
}

function passEvent(message: Fields): Passed {
  if (typeof message.event !== 'string' || !EVENTS.has(message.event)) return { kind: 'dropped' };
  const body = message.body;
  if (message.event === 'output' && v.is(Fields, body) && body.category === 'telemetry') return { kind: 'dropped' };
  // VS Code would start the session anew, by the configuration of launch.json that has its name.
  if (message.event === 'terminated') return { kind: 'passed', message: { ...message, body: undefined } };
  // It would add and remove the user's own.
  if (message.event === 'breakpoint' && !(v.is(Fields, body) && body.reason === 'changed')) return { kind: 'dropped' };
  if (v.is(Fields, body)) {
    // Progress is a notification, and important output is one as well.
    if (message.event.startsWith('progress')) cleanTexts(body, ['title', 'message']);
    if (message.event === 'output' && body.category === 'important') cleanTexts(body, ['output']);
  }
  cleanSources(body, 0);
  return { kind: 'passed', message };
}

function cleanResponse(message: Fields): Fields {
  const body = message.body;
  cleanTexts(message, ['message']);
  if (v.is(Fields, body) && body.error !== undefined) {
    if (v.is(Fields, body.error)) body.error = cleanError(body.error);
    else delete body.error;
  }
  cleanSources(body, 0);
  return message;
}

/** Makes the texts `keys` of `fields` ones without links, and takes away what is no text: VS Code would make it one. */
function cleanTexts(fields: Fields, keys: string[]): void {
  for (const key of keys) {
    const value = fields[key];
    fields[key] = typeof value === 'string' ? withoutLinks(value) : undefined;
  }
}

/** An error that is shown as text. Its variables are put in here, where the result can be seen. */
function cleanError(error: Fields): Fields {
  const { id, showUser } = error;
  const format = typeof error.format === 'string' ? error.format : '';
  const variables = v.is(Fields, error.variables) ? error.variables : {};
  const text = format.replace(/\{([^}]*)\}/g, (braces, name: string) => {
    const value = variables[name];
    return typeof value === 'string' ? value : braces;
  });
  return { id, showUser, format: '{text}', variables: { text: withoutLinks(text) } };
}

function passRequest(message: Fields, relay: string | undefined, mayOpen: () => boolean): Passed {
  const requested = message.arguments;
  if (message.command === 'startDebugging' && v.is(StartDebugging, requested)) {
    const configuration: Fields = {};
    for (const key of CHILD_KEYS) {
      if (requested.configuration[key] !== undefined) configuration[key] = requested.configuration[key];
    }
    // A task's name is in it.
    configuration.name = withoutVariables(oneLine(requested.configuration.name, MAX_NAME));
    if (JSON.stringify(configuration).includes('${') || !mayOpen()) return refuse(message);
    // A child's tunnel leads to its parent's relay, whatever the relay says.
    if (relay !== undefined) configuration.relay = relay;
    return { kind: 'passed', message: { ...message, arguments: { request: 'attach', configuration } } };
  }
  return refuse(message);
}

function refuse(message: Fields): Passed {
  const answer = {
    seq: 0,
    type: 'response',
    request_seq: message.seq,
    command: message.command,
    success: false,
    message: 'this editor does not do that for a relay',
  };
  return { kind: 'refused', answer };
}

/** Takes away paths of sources that VS Code would not look for on the local disk. */
function cleanSources(value: unknown, depth: number): void {
  if (typeof value !== 'object' || value === null || depth > MAX_SOURCE_DEPTH) return;
  if (Array.isArray(value)) {
    for (const one of value) cleanSources(one, depth + 1);
    return;
  }
  const fields = value as Fields;
  for (const [key, one] of Object.entries(fields)) {
    if (SOURCE_KEYS.has(key) && typeof one === 'object') cleanPaths(one);
    cleanSources(one, depth + 1);
  }
}

function cleanPaths(source: unknown): void {
  for (const one of Array.isArray(source) ? source : [source]) {
    if (!v.is(Fields, one)) continue;
    if (one.path !== undefined && !(typeof one.path === 'string' && namesLocalFile(one.path))) delete one.path;
    // VS Code takes the name for the path where there is none.
    if (one.path || one.name === undefined) continue;
    if (typeof one.name !== 'string') delete one.name;
    else if (!namesLocalFile(one.name)) one.name = one.name.replace(/[/\\:]+/g, '_');
  }
}

/** Whether VS Code takes `path` for a file of this machine: no URI, and no share, which Windows would log in to. */
export function namesLocalFile(path: string): boolean {
  if (/^[/\\]{2}/.test(path) || /^[/\\]\?\?[/\\]/.test(path)) return false;
  if (path.startsWith('/') && NO_FILES.test(posix.normalize(path))) return false;
  if (/^[a-zA-Z]:[/\\]{2}/.test(path)) return false;
  const scheme = /^[a-zA-Z][a-zA-Z0-9+.-]*:/.exec(path)?.[0];
  return scheme === undefined || scheme.length === 2;
}

/** `message` of VS Code as the relay gets it: terminal commands are never run, so they are not offered. */
export function passToRelay(message: unknown): unknown {
  if (!v.is(Fields, message) || message.command !== 'initialize' || !v.is(Fields, message.arguments)) return message;
  return { ...message, arguments: { ...message.arguments, supportsRunInTerminalRequest: false } };
}
