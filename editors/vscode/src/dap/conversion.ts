// Configurations of type "debugpy" that lead to a relay, as ones of type "ray-relay". Pure.

import * as v from 'valibot';

import { DEBUG_TYPE, type Configuration } from './configuration.js';

const ForRelay = v.looseObject({
  type: v.picklist(['debugpy', 'python']),
  request: v.literal('attach'),
  name: v.string(),
  rayRelay: v.optional(v.looseObject({})),
});

/** Keys that say how the port is reached, which the extension does itself. */
const OF_THE_PORT = ['connect', 'host', 'port', 'listen', 'debugAdapterPath', 'rayRelayToken'];

/** `configuration` for the relay `relay`; `undefined`: it is not for a relay. Its name stays. */
export function converted(configuration: unknown, relay: string | undefined): Configuration | undefined {
  if (!v.is(ForRelay, configuration) || configuration.rayRelay === undefined) return undefined;
  const rest = Object.fromEntries(Object.entries(configuration).filter(([key]) => !OF_THE_PORT.includes(key)));
  const selector = Object.entries(configuration.rayRelay).filter(([key]) => key !== 'token' && key !== 'listen');
  const { name } = configuration;
  return {
    ...rest,
    name,
    type: DEBUG_TYPE,
    request: 'attach',
    ...(relay === undefined ? {} : { relay }),
    rayRelay: Object.fromEntries(selector),
  };
}
