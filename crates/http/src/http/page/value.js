// The value of a variable in the debugger's notation. Lists, dictionaries and objects in brackets can be unfolded. Only the text
// is parsed, and a truncated text is shown as it is.

import { make } from './text.js';

/** Longer values are folded, and their summary has this length. */
const MAX_INLINE_CHARS = 72;
const MAX_PARTS = 500;

const CLOSES = { '(': ')', '[': ']', '{': '}' };

/** The parts of `text` in its outer brackets, as `[name, value]`; null: there are none. */
export function parts(text) {
  const opening = text.match(/^[\w.]*\s?[([{]/)?.[0];
  if (!opening || !text.endsWith(CLOSES[opening.at(-1)])) return null;
  const named = opening.at(-1) === '{' ? ':' : opening.length > 1 ? '=' : null;
  const [found, expected] = [[], []];
  let [from, split] = [opening.length, -1];
  const addPart = (to) => {
    const whole = text.slice(from, to).trim();
    if (whole) found.push(split < 0 ? [null, whole] : [text.slice(from, split).trim(), text.slice(split + 1, to).trim()]);
    [from, split] = [to + 1, -1];
  };
  for (let at = opening.length; at < text.length - 1; at += 1) {
    const sign = text[at];
    if (sign === '"' || sign === "'") {
      for (at += 1; at < text.length && text[at] !== sign; at += 1) if (text[at] === '\\') at += 1;
    } else if (CLOSES[sign]) expected.push(CLOSES[sign]);
    else if (')]}'.includes(sign) && expected.pop() !== sign) return null;
    else if (expected.length === 0 && sign === ',') addPart(at);
    else if (expected.length === 0 && sign === named && split < 0) split = at;
  }
  if (expected.length > 0) return null;
  addPart(text.length - 1);
  return found.length > 0 ? found : null;
}

function item([name, value], at) {
  const known = name ?? `${at}`;
  return make('li', {}, make('span', { class: name == null ? 'index' : 'key' }, known), ' ', value.length ? shown(value) : '');
}

/** The element that shows `text`, a value. */
export function shown(text) {
  const inner = parts(text);
  const isLong = text.length > MAX_INLINE_CHARS || text.includes('\n');
  if (!isLong && !(inner && inner.some(([, value]) => parts(value)))) return make('span', { class: 'value' }, text);
  const line = text.replace(/\s+/g, ' ');
  const summary = make('summary', {}, line.length > MAX_INLINE_CHARS ? `${line.slice(0, MAX_INLINE_CHARS)}…` : line);
  const element = make('details', { class: 'value' }, summary);
  // Created when it is unfolded, because it may be long.
  element.addEventListener('toggle', () => {
    if (element.children.length > 1) return;
    if (!inner) return element.append(make('pre', { tabindex: '0', 'aria-label': 'Value' }, text));
    const rest = inner.length > MAX_PARTS ? make('li', { class: 'hint' }, `and ${inner.length - MAX_PARTS} more`) : null;
    element.append(make('ul', { class: 'parts' }, ...inner.slice(0, MAX_PARTS).map(item), rest));
  });
  return element;
}
