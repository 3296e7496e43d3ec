// The text messages of a link. Bytes are binary messages, and an empty one is the end of a direction.

import * as v from 'valibot';

const Position = v.pipe(v.number(), v.safeInteger(), v.minValue(0));

const hex = (digits: number) => v.pipe(v.string(), v.regex(new RegExp(`^[0-9a-f]{${digits}}$`)));

const Known = v.variant('type', [
  /** The relay's first message on a new link. `held`: for how long it is kept without a transport, in seconds. */
  v.object({
    type: v.literal('begun'),
    link: hex(16),
    secret: hex(32),
    replica: v.pipe(v.string(), v.maxLength(64)),
    held: Position,
  }),
  /** The relay's first message on a resumed link: it has everything before `received`. */
  v.object({ type: v.literal('resumed'), received: Position }),
  /** A client has connected. */
  v.object({ type: v.literal('used') }),
  /** Everything before this position was consumed. */
  v.object({ type: v.literal('taken'), before: Position }),
  /** The reader of the other side is gone. */
  v.object({ type: v.literal('gone') }),
]);

export type LinkMessage = v.InferOutput<typeof Known>;

const Typed = v.object({ type: v.string() });
const KNOWN_TYPES = new Set(['begun', 'resumed', 'used', 'taken', 'gone']);

/** Parses a text message. `undefined`: its type belongs to another version, and it is ignored. Throws on all else. */
export function parseLinkMessage(text: string): LinkMessage | undefined {
  const value: unknown = JSON.parse(text);
  if (!KNOWN_TYPES.has(v.parse(Typed, value).type)) return undefined;
  return v.parse(Known, value);
}
