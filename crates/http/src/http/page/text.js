// Elements and texts. Whatever comes from the relay is shown as text: the name of a task is somebody else's.

// Characters that are not seen, or that turn the direction of those around them.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** `text` with what is not seen made visible. */
export function clean(text) {
  return String(text ?? '').replace(UNSEEN, '\ufffd');
}

/** An element with attributes and children, which are elements or texts. */
export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'onclick') {
      made.addEventListener('click', value);
    } else if (value === true) {
      made.setAttribute(name, '');
    } else if (value !== false && value != null) {
      made.setAttribute(name, value);
    }
  }
  made.append(...children.filter((child) => child != null).map((child) => (child instanceof Node ? child : clean(child))));
  return made;
}

/** The element of the document called `id`. */
export function find(id) {
  return document.getElementById(id);
}

/** Writes `text` into `element`, where it is not there already. */
export function write(element, text) {
  const cleaned = clean(text);
  if (element.textContent !== cleaned) {
    element.textContent = cleaned;
  }
}

/** The name of the file at `path`. */
export function fileName(path) {
  return String(path ?? '').split('/').at(-1);
}

/** Says at the top of the lists what was done. */
export function say(text) {
  write(find('said'), text);
}

/** Seconds in their two largest units, as everywhere in the relay: `14s`, `2m 14s`, `3h 02m`, `2d 4h`. */
export function span(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const two = (number) => String(number).padStart(2, '0');
  const [s, m] = [whole % 60, Math.floor(whole / 60) % 60];
  const [h, d] = [Math.floor(whole / 3600) % 24, Math.floor(whole / 86400)];
  if (d > 0) return `${d}d ${h}h`;
  if (h > 0) return `${h}h ${two(m)}m`;
  if (m > 0) return `${m}m ${two(s)}s`;
  return `${s}s`;
}

/** The same in the largest unit alone: `12m`. */
export function brief(seconds) {
  return span(seconds).split(' ')[0];
}

const TIME = new Intl.DateTimeFormat([], { hour: '2-digit', minute: '2-digit', second: '2-digit' });

/** The time of day of `when`, a Date, with the date where that is another day. */
export function clock(when) {
  const today = when.toDateString() === new Date().toDateString();
  return today ? TIME.format(when) : `${when.toLocaleDateString()} ${TIME.format(when)}`;
}

/** Has the `<time>` in `element` show how far `at`, in milliseconds, is from now, and the time itself on hover. */
export function setTime(element, at) {
  const exact = new Date(at);
  if (element.dataset.at === String(at)) return;
  element.dataset.at = at;
  element.dateTime = exact.toISOString();
  element.title = clock(exact);
  tick(element);
}

/** A `<time>` of how far `at`, in milliseconds, is from now. */
export function time(at) {
  // What ticks is not read out each time.
  const made = make('time', { 'aria-live': 'off' });
  setTime(made, at);
  return made;
}

function tick(element) {
  write(element, span(Math.abs(Date.now() - element.dataset.at) / 1000));
}

setInterval(() => {
  if (!document.hidden) document.querySelectorAll('time').forEach(tick);
}, 1000);

/** What it holds of its node: `2 GPU (A100), 1 CPU`; empty where that is not known. */
export function holds(row) {
  const [type, memory] = ['accelerator_type:', ['memory', 'object_store_memory']];
  const { GPU, CPU, ...others } = row.resources ?? {};
  const names = Object.keys(others);
  const types = names.filter((name) => name.startsWith(type)).map((name) => name.slice(type.length));
  const amount = (name) => (memory.includes(name) ? `${Math.round(others[name] / 1048576)} MiB ${name}` : `${others[name]} ${name}`);
  const told = names.filter((name) => !name.startsWith(type)).map(amount);
  if (CPU) told.unshift(`${CPU} CPU`);
  if (GPU) told.unshift(types.length ? `${GPU} GPU (${types.join(', ')})` : `${GPU} GPU`);
  return told.join(', ');
}

/** Copies `text`, shown in `element`; where the browser allows no copying, it is selected. Says what was done. */
export async function copy(text, element) {
  try {
    await navigator.clipboard.writeText(text);
    return 'Copied.';
  } catch {
    getSelection().selectAllChildren(element);
    return 'Selected: press Ctrl-C (or Cmd-C) to copy.';
  }
}
