// Highlights Python source line by line. Lines may be incomplete.

import { make } from './text.js';

const KEYWORDS = new Set('False None True and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield'.split(' '));
/** A comment, the start of a string, a number, a name, or anything between. */
const TOKENS = /(#.*)|((?:\b[rbfuRBFU]{1,2})?("""|'''|"|'))|(\b\d[\w.]*)|([^\W\d]\w*)|\s+|./gu;

/** The end of the string that `quote` opened, searched from `at` in `text`; -1: not in this line. */
function end(text, quote, at) {
  for (let place = at; place < text.length; place += text[place] === '\\' ? 2 : 1) {
    if (text.startsWith(quote, place)) return place + quote.length;
  }
  return quote.length === 1 ? text.length : -1;
}

/** The lines of `source`, each as texts and `<span>`s. */
export function highlightedLines(source) {
  // The triple quote of a string that continues from the previous line.
  let open = null;
  let defines = false;
  return source.map((text) => {
    const parts = [];
    const addPart = (kind, from, to) => parts.push(kind ? make('span', { class: `py-${kind}` }, text.slice(from, to)) : text.slice(from, to));
    let at = 0;
    if (open) {
      const closesAt = end(text, open, 0);
      at = closesAt < 0 ? text.length : closesAt;
      addPart('string', 0, at);
      if (closesAt >= 0) open = null;
    }
    while (at < text.length) {
      TOKENS.lastIndex = at;
      const [whole, comment, string, quote, number, name] = TOKENS.exec(text);
      let to = at + whole.length;
      if (string) {
        const closesAt = end(text, quote, to);
        if (closesAt < 0) open = quote;
        to = closesAt < 0 ? text.length : closesAt;
      }
      const isKeyword = name && KEYWORDS.has(name);
      const kind = comment ? 'comment' : string ? 'string' : number ? 'number' : isKeyword ? 'keyword' : name && defines ? 'defined' : null;
      addPart(kind, at, to);
      if (name) defines = name === 'def' || name === 'class';
      at = to;
    }
    return parts;
  });
}
