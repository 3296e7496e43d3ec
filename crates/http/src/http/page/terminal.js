// A terminal: the relay's prompt of plain lines, as `nc` has it, over a WebSocket. What it prints is a log, what is typed a
// line; the prompt draws nothing by escape sequences, so a whole emulator has nothing to do here.

import { token } from './relay.js';
import { clean, make } from './text.js';

/** Characters that are kept of what was printed. */
const MOST = 200_000;
/** Lines that can be had again. */
const LINES = 200;
/** What a prompt takes for the interrupt key. */
const INTERRUPT = '\u0003';
/** How long the relay has for its own last words, in milliseconds. */
const LAST_WORDS = 3_000;

/** Sequences by which a program colours its output or moves the cursor. */
const SEQUENCES = /\u001b\[[0-9;?]*[ -/]*[@-~]/g;

const open = new Set();

addEventListener('beforeunload', (event) => {
  if (open.size > 0) event.preventDefault();
});

/** Whether `me` may have a prompt that a debugger is opened for. */
export function mayPrompt(me) {
  return ['debug', 'terminal'].every((scope) => me.scopes.has(scope));
}

/** A view with a place, `prompt`, for a terminal. */
export class WithTerminal {
  /** Opens one on `name` for the `errand`, and gives whether it is new: one that is open is gone back to. */
  opens(errand, name, over) {
    const isNew = !this.terminal?.over;
    if (isNew) {
      this.terminal = new Terminal(errand, name, over);
      this.prompt.replaceChildren(this.terminal.element);
    }
    this.terminal.input.focus();
    return isNew;
  }

  /** Whether it has to stay while another one is shown. */
  isBusy() {
    return Boolean(this.terminal?.over);
  }

  /** Ends what goes on here. */
  close() {
    this.terminal?.close();
    this.element.remove();
  }
}

/** A terminal on `name` for the `errand`, the first line that the relay is told; `over` is called at its end. */
export class Terminal {
  constructor(errand, name, over) {
    this.over = over;
    this.typed = [];
    this.at = 0;
    this.log = make('pre', { class: 'screen', role: 'log', tabindex: '0', 'aria-label': `Output of the terminal on ${name}` });
    this.input = make('input', { type: 'text', class: 'typed', 'aria-label': `A line for the terminal on ${name}`, autocomplete: 'off', autocapitalize: 'off', autocorrect: 'off', spellcheck: 'false', enterkeyhint: 'send' });
    this.line = make(
      'form',
      { class: 'typing' },
      this.input,
      make('button', { type: 'submit' }, 'Send'),
      make('button', { type: 'button', class: 'quiet', title: 'Stops a task that runs (Ctrl-C)', onclick: () => this.interrupt() }, 'Interrupt'),
    );
    this.line.addEventListener('submit', (event) => {
      event.preventDefault();
      this.enter();
    });
    this.input.addEventListener('keydown', (event) => this.key(event));
    const hint = make('p', { class: 'hint' }, 'The prompt is that of pdb: ', make('code', {}, 'p x'), ', ', make('code', {}, 'x = 1'), ', ', make('code', {}, 'next'), ', ', make('code', {}, 'continue'), '; ', make('code', {}, 'help'), ' lists them. ', make('code', {}, 'quit'), ' lets the task run on. Leaving the page does not: a task that stands is parked for you, where sessions are kept here.');
    this.element = make('div', { class: 'terminal' }, hint, this.log, this.line);
    this.connect(errand);
  }

  connect(errand) {
    const address = new URL('v1/terminal', document.baseURI);
    address.protocol = address.protocol.replace('http', 'ws');
    const known = token();
    // In no address, where it would be logged.
    const protocols = ['ray-relay.terminal.v1', ...(known ? [`ray-relay.bearer.${known}`] : [])];
    const decoder = new TextDecoder();
    try {
      this.socket = new WebSocket(address, protocols);
    } catch {
      return this.end('\n*** this token cannot be sent by a browser; use `ray-relay debug`\n');
    }
    this.socket.binaryType = 'arraybuffer';
    this.socket.addEventListener('open', () => {
      open.add(this);
      this.socket.send(`${errand}\n`);
    });
    this.socket.addEventListener('message', ({ data }) => {
      this.print(typeof data === 'string' ? data : decoder.decode(data, { stream: true }));
    });
    this.socket.addEventListener('close', ({ wasClean }) => {
      this.end(wasClean ? '' : '\n*** the connection to the relay is lost, or was not allowed\n');
    });
  }

  /** Shows `text`, and keeps to its end where the end is in sight. */
  print(text) {
    const log = this.log;
    const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    const last = log.lastChild;
    const cleaned = clean(text.replace(SEQUENCES, '').replace(/\r\n?/g, '\n'));
    if (last && last.nodeType === Node.TEXT_NODE && last.length < 4_000) last.appendData(cleaned);
    else log.append(cleaned);
    for (let rest = log.textContent.length - MOST; rest > 0 && log.childNodes.length > 1; ) {
      rest -= log.firstChild.textContent.length;
      log.firstChild.remove();
    }
    if (follows) log.scrollTop = log.scrollHeight;
  }

  enter() {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    const line = this.input.value;
    this.input.value = '';
    if (line && this.typed.at(-1) !== line) this.typed.push(line);
    if (this.typed.length > LINES) this.typed.shift();
    this.at = this.typed.length;
    this.log.append(make('b', {}, `${line}\n`));
    this.log.scrollTop = this.log.scrollHeight;
    this.socket.send(`${line}\n`);
  }

  interrupt() {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(INTERRUPT);
    this.input.focus();
  }

  key(event) {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (step) {
      event.preventDefault();
      this.at = Math.min(Math.max(this.at + step, 0), this.typed.length);
      this.input.value = this.typed[this.at] ?? '';
    } else if (event.key === 'c' && event.ctrlKey && !getSelection().toString()) {
      event.preventDefault();
      this.interrupt();
    }
  }

  /** The list says that the task has ended: nothing answers what is typed here any more. */
  taskEnded() {
    if (!this.over || this.ending) return;
    this.ending = setTimeout(() => {
      this.end('\n*** the task has ended\n');
      this.socket?.close();
    }, LAST_WORDS);
  }

  /** It has not, or another one of the same worker has stopped. */
  taskStands() {
    clearTimeout(this.ending);
    this.ending = null;
  }

  end(why) {
    if (!this.over) return;
    open.delete(this);
    this.print(`${why}\n[the terminal is closed]\n`);
    this.line.remove();
    const over = this.over;
    this.over = null;
    over();
  }

  close() {
    this.taskStands();
    this.over = null;
    open.delete(this);
    this.socket?.close();
  }
}
