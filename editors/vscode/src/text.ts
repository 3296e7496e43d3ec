// Texts from a relay or a worker, which are untrusted, and durations.

// Characters that are invisible or change the text direction: control and format characters, and fillers.

const INVISIBLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u034f\u115f\u1160\u3164]/gu;

/** `text` in one line without invisible characters, at most `most` characters. */
export function oneLine(text: string, most: number): string {
  const clean = text.replace(/\s+/g, ' ').replace(INVISIBLE, '\ufffd').trim();
  if (clean.length <= most) return clean;
  return `${cutTo(clean, most - 1)}…`;
}

/** The first `most` units of `text`, and not half a character. */
export function cutTo(text: string, most: number): string {
  if (text.length <= most) return text;
  const cut = text.slice(0, most).replace(/[\ud800-\udbff]$/, '');
  // A copy: a slice keeps all of a long text in memory.
  return Buffer.from(cut, 'utf16le').toString('utf16le');
}

/** A duration in its two largest units, as everywhere in the relay: `14s`, `2m 14s`, `3h 02m`, `2d 4h`. */
export function span(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const twoDigits = (number: number) => String(number).padStart(2, '0');
  const [s, m] = [whole % 60, Math.floor(whole / 60) % 60];
  const [h, d] = [Math.floor(whole / 3600) % 24, Math.floor(whole / 86400)];
  if (d > 0) return `${d}d ${h}h`;
  if (h > 0) return `${h}h ${twoDigits(m)}m`;
  if (m > 0) return `${m}m ${twoDigits(s)}s`;
  return `${s}s`;
}

/** A duration in its largest unit: `12m`. */
export function briefSpan(seconds: number): string {
  return span(seconds).split(' ')[0] ?? '';
}

/** The last part of a path of any system. */
export function fileName(path: string): string {
  return path.split(/[/\\]/).at(-1) ?? path;
}

/** `text` for a notification: VS Code makes `[text](address)` a link there, and a link may be a command. */
export function withoutLinks(text: string): string {
  return text.replaceAll('](', '] (');
}

/** `text` for a debug configuration: VS Code replaces `${…}` there, by commands and environment variables as well. */
export function withoutVariables(text: string): string {
  return text.replaceAll('${', '$ {');
}

/** Longest line of a text that is read in an editor, which does not wrap it. */
const MAX_COLUMNS = 100;

/** `text` in lines, the first after `prefix` and the others below the first. Longer words have lines of their own. */
export function wrapped(prefix: string, text: string): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && prefix.length + line.length + 1 + word.length > MAX_COLUMNS) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  const indent = ' '.repeat(prefix.length);
  return [...lines, line].map((one, at) => `${at === 0 ? prefix : indent}${one}`);
}
