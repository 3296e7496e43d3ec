// Python source with its parts told apart, by looking at it only: no line of it is run, and none has to be whole.

import { make } from './text.js';

const KEYWORDS = new Set('False None True and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield'.split(' '));
/** A comment, the begin of a string, a number, a name, or what is between. */
const PARTS = /(#.*)|((?:\b[rbfuRBFU]{1,2})?("""|'''|"|'))|(\b\d[\w.]*)|([^\W\d]\w*)|\s+|./gu;

/** Where the string ends that `quote` has begun, from `at` on in `text`; -1: not in this line. */
function end(text, quote, at) {
  for (let place = at; place < text.length; place += text[place] === '\\' ? 2 : 1) {
    if (text.startsWith(quote, place)) return place + quote.length;
  }
  return quote.length === 1 ? text.length : -1;
}

/** The lines of `source`, each as texts and `<span>`s. */
export function coloured(source) {
  // The long string that goes on from the line before.
  let open = null;
  let defines = false;
  return source.map((text) => {
    const parts = [];
    const put = (kind, from, to) => parts.push(kind ? make('span', { class: `py-${kind}` }, text.slice(from, to)) : text.slice(from, to));
    let at = 0;
    if (open) {
      const closes = end(text, open, 0);
      at = closes < 0 ? text.length : closes;
      put('string', 0, at);
      if (closes >= 0) open = null;
    }
    while (at < text.length) {
      PARTS.lastIndex = at;
      const [whole, comment, string, quote, number, name] = PARTS.exec(text);
      let to = at + whole.length;
      if (string) {
        const closes = end(text, quote, to);
        if (closes < 0) open = quote;
        to = closes < 0 ? text.length : closes;
      }
      const isKeyword = name && KEYWORDS.has(name);
      const kind = comment ? 'comment' : string ? 'string' : number ? 'number' : isKeyword ? 'keyword' : name && defines ? 'defined' : null;
      put(kind, at, to);
      if (name) defines = name === 'def' || name === 'class';
      at = to;
    }
    return parts;
  });
}
