// The attach arguments of a debug session, from launch.json or a command. Pure.

import { withoutVariables } from '../text.js';

/** The type of our debug sessions. */
export const DEBUG_TYPE = 'ray-relay';

/** `rayRelay` in the attach arguments: which task. */
export interface AttachSelector {
  breakpoint?: string;
  task?: string;
  worker?: string;
  running?: boolean;
  job?: string;
  cluster?: string;
  all?: boolean | 'mine';
}

/** A configuration as VS Code has it. */
export interface Configuration {
  type: string;
  name: string;
  request: string;
  [key: string]: unknown;
}

/** A name that VS Code would not leave as it is. */
export class UnusableName extends Error {}

/** The configuration for tasks of the relay `relay`; `undefined`: of the only one. Throws an {@link UnusableName}. */
export function attachConfiguration(relay: string | undefined, name: string, selector: AttachSelector): Configuration {
  // VS Code replaces variables in configurations, and whoever starts a task chooses its name.
  if (JSON.stringify([relay, selector]).includes('${')) {
    throw new UnusableName(
      'VS Code takes ${…} for a variable: a relay, task or job with that in its name cannot be named.',
    );
  }
  return {
    type: DEBUG_TYPE,
    request: 'attach',
    name: withoutVariables(name),
    ...(relay === undefined ? {} : { relay }),
    rayRelay: selector,
  };
}

/** Why a configuration cannot be used, as a sentence; `undefined`: it can. */
export function problemOf(configuration: Configuration): string | undefined {
  if (configuration.request !== 'attach') {
    return 'A session of type "ray-relay" attaches to a task that is paused: write "request": "attach".';
  }
  if (configuration.relay !== undefined && typeof configuration.relay !== 'string') {
    return '"relay" is the name of a relay in the view "Ray".';
  }
  for (const key of ['debugServer', 'listen', 'processId']) {
    if (configuration[key] !== undefined) return `"${key}" has no meaning for type "ray-relay": leave it out.`;
  }
  return undefined;
}

/** `configuration` with what the Python Debugger extension fills in for its own type (2026.7). */
export function withDefaults(
  configuration: Configuration,
  folder: string | undefined,
  isWindows: boolean,
): Configuration {
  const showReturnValue = configuration.showReturnValue ?? true;
  const redirectOutput = configuration.redirectOutput ?? true;
  const options = [
    ...(redirectOutput === false ? [] : ['RedirectOutput']),
    ...(showReturnValue === false ? [] : ['ShowReturnValue']),
    ...(configuration.justMyCode === false ? ['DebugStdLib'] : []),
  ];
  return {
    justMyCode: true,
    ...(folder === undefined ? {} : { workspaceFolder: folder }),
    ...configuration,
    showReturnValue,
    redirectOutput,
    debugOptions: configuration.debugOptions ?? options,
    clientOS: isWindows ? 'windows' : 'unix',
  };
}
