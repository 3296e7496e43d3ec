// Server-sent events as the relay writes them: lines end in a line feed.

/** Largest event. */
const MAX_EVENT_CHARACTERS = 16 * 1024 * 1024;

export interface ServerSentEvent {
  name: string;
  data: string;
}

/** Incremental parser: takes text split anywhere. */
export class EventParser {
  private pieces: string[] = [];
  private length = 0;

  /** The events that are complete with `text`. Throws if one is too large. */
  feed(text: string): ServerSentEvent[] {
    if (text === '') return [];
    this.pieces.push(text);
    this.length += text.length;
    if (this.length > MAX_EVENT_CHARACTERS) throw new Error('an event is too large');
    // Only look at all of it when its end may be here: a long list comes in many pieces.
    const last = this.pieces.length > 1 ? (this.pieces.at(-2)?.slice(-1) ?? '') : '';
    if (!(last + text).includes('\n\n')) return [];
    const blocks = this.pieces.join('').split('\n\n');
    const rest = blocks.pop() ?? '';
    this.pieces = rest === '' ? [] : [rest];
    this.length = rest.length;
    return blocks.flatMap((block) => parseBlock(block) ?? []);
  }
}

function parseBlock(block: string): ServerSentEvent | undefined {
  let name = 'message';
  const data: string[] = [];
  for (const line of block.split('\n')) {
    const colon = line.indexOf(':');
    if (colon <= 0) continue;
    const field = line.slice(0, colon);
    const value = line.slice(colon + 1).replace(/^ /, '');
    if (field === 'event') name = value;
    if (field === 'data') data.push(value);
  }
  return data.length === 0 ? undefined : { name, data: data.join('\n') };
}
