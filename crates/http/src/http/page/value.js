// The value of a variable, as the debugger writes it: what is a list, a dictionary or an object in brackets unfolds. That is read
// off the text alone, and a text that was cut is shown as it is.

import { make } from './text.js';

/** A value that is as short is shown at once, and so much of a longer one, in characters. */
const SHORT = 72;
/** Parts of one value that are shown. */
const MOST = 500;

const CLOSES = { '(': ')', '[': ']', '{': '}' };

/** The parts of `text` between the brackets that it ends with, as `[name, value]`; null: it has none. */
export function parts(text) {
  const opening = text.match(/^[\w.]*\s?[([{]/)?.[0];
  if (!opening || !text.endsWith(CLOSES[opening.at(-1)])) return null;
  const named = opening.at(-1) === '{' ? ':' : opening.length > 1 ? '=' : null;
  const [found, expected] = [[], []];
  let [from, split] = [opening.length, -1];
  const put = (to) => {
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
    else if (expected.length === 0 && sign === ',') put(at);
    else if (expected.length === 0 && sign === named && split < 0) split = at;
  }
  if (expected.length > 0) return null;
  put(text.length - 1);
  return found.length > 0 ? found : null;
}

function item([name, value], at) {
  const known = name ?? `${at}`;
  return make('li', {}, make('span', { class: name == null ? 'index' : 'key' }, known), ' ', value.length ? shown(value) : '');
}

/** The element that shows `text`, a value. */
export function shown(text) {
  const inner = parts(text);
  const isLong = text.length > SHORT || text.includes('\n');
  if (!isLong && !(inner && inner.some(([, value]) => parts(value)))) return make('span', { class: 'value' }, text);
  const line = text.replace(/\s+/g, ' ');
  const summary = make('summary', {}, line.length > SHORT ? `${line.slice(0, SHORT)}…` : line);
  const element = make('details', { class: 'value' }, summary);
  // Made when it is wanted: what is within may be long.
  element.addEventListener('toggle', () => {
    if (element.children.length > 1) return;
    if (!inner) return element.append(make('pre', { tabindex: '0', 'aria-label': 'Value' }, text));
    const rest = inner.length > MOST ? make('li', { class: 'hint' }, `and ${inner.length - MOST} more`) : null;
    element.append(make('ul', { class: 'parts' }, ...inner.slice(0, MOST).map(item), rest));
  });
  return element;
}
