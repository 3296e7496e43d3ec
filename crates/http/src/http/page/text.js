// Elements and texts. Everything from the relay is shown as text: the name of a task is untrusted.

// Characters that are invisible or change the text direction.
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** Replaces invisible characters in `text`. */
export function clean(text) {
  return String(text ?? '').replace(INVISIBLE, '\ufffd');
}

/** An element with attributes and children, which are elements or texts. */
export function make(tag, attributes = {}, ...children) {
  const created = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'onclick') {
      created.addEventListener('click', value);
    } else if (value === true) {
      created.setAttribute(name, '');
    } else if (value !== false && value != null) {
      created.setAttribute(name, value);
    }
  }
  created.append(...children.filter((child) => child != null).map((child) => (child instanceof Node ? child : clean(child))));
  return created;
}

export function find(id) {
  return document.getElementById(id);
}

/** Sets the text of `element`, if it differs. */
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

/** Shows a message above the lists. */
export function showMessage(text) {
  write(find('said'), text);
}

/** A duration in its two largest units, as everywhere in the relay: `14s`, `2m 14s`, `3h 02m`, `2d 4h`. */
export function span(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const twoDigits = (number) => String(number).padStart(2, '0');
  const [s, m] = [whole % 60, Math.floor(whole / 60) % 60];
  const [h, d] = [Math.floor(whole / 3600) % 24, Math.floor(whole / 86400)];
  if (d > 0) return `${d}d ${h}h`;
  if (h > 0) return `${h}h ${twoDigits(m)}m`;
  if (m > 0) return `${m}m ${twoDigits(s)}s`;
  return `${s}s`;
}

/** A duration in its largest unit: `12m`. */
export function briefSpan(seconds) {
  return span(seconds).split(' ')[0];
}

const TIME = new Intl.DateTimeFormat([], { hour: '2-digit', minute: '2-digit', second: '2-digit' });

/** The time of day of `date`, with the date on another day. */
export function clock(date) {
  const today = date.toDateString() === new Date().toDateString();
  return today ? TIME.format(date) : `${date.toLocaleDateString()} ${TIME.format(date)}`;
}

/** Makes the `<time>` `element` show the distance of `at`, in milliseconds, from now, and the time itself on hover. */
export function setTime(element, at) {
  const exact = new Date(at);
  if (element.dataset.at === String(at)) return;
  element.dataset.at = at;
  element.dateTime = exact.toISOString();
  element.title = clock(exact);
  tick(element);
}

/** A `<time>` with the distance of `at`, in milliseconds, from now. */
export function time(at) {
  // Screen readers must not read each tick.
  const created = make('time', { 'aria-live': 'off' });
  setTime(created, at);
  return created;
}

function tick(element) {
  write(element, span(Math.abs(Date.now() - element.dataset.at) / 1000));
}

setInterval(() => {
  if (!document.hidden) document.querySelectorAll('time').forEach(tick);
}, 1000);

/** The resources of a task: `2 GPU (A100), 1 CPU`; empty if unknown. */
export function resourceText(row) {
  const [type, memory] = ['accelerator_type:', ['memory', 'object_store_memory']];
  const { GPU, CPU, ...others } = row.resources ?? {};
  const names = Object.keys(others);
  const types = names.filter((name) => name.startsWith(type)).map((name) => name.slice(type.length));
  const amount = (name) => (memory.includes(name) ? `${Math.round(others[name] / 1048576)} MiB ${name}` : `${others[name]} ${name}`);
  const parts = names.filter((name) => !name.startsWith(type)).map(amount);
  if (CPU) parts.unshift(`${CPU} CPU`);
  if (GPU) parts.unshift(types.length ? `${GPU} GPU (${types.join(', ')})` : `${GPU} GPU`);
  return parts.join(', ');
}

/** Copies `text`, or selects `element`, which shows it, if the browser forbids copying. Returns a message about it. */
export async function copy(text, element) {
  try {
    await navigator.clipboard.writeText(text);
    return 'Copied.';
  } catch {
    getSelection().selectAllChildren(element);
    return 'Selected: press Ctrl-C (or Cmd-C) to copy.';
  }
}

/** Sentences about the troubled ones among `clusters`, each behind a space. */
export function clusterTroubles(clusters) {
  const troubled = clusters.filter((cluster) => cluster.trouble);
  return troubled.map((cluster) => ` Cluster ${cluster.name}: ${cluster.trouble}.`).join('');
}
