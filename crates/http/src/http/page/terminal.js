// A terminal: the relay's line-based prompt over a WebSocket. The output is a log, and the input a line: the prompt draws
// nothing by escape sequences, so no terminal emulator is needed.

import { token } from './relay.js';
import { clean, make } from './text.js';

/** Characters of output that are kept. */
const MAX_LOG_CHARS = 200_000;
/** Lines of input that are kept. */
const MAX_HISTORY = 200;
/** The interrupt key of the prompt. */
const INTERRUPT = '\u0003';
/** How long the relay may still send output after the task has ended. */
const END_DELAY_MS = 3_000;

/** Sequences by which a program colours its output or moves the cursor. */
const ESCAPE_SEQUENCES = /\u001b\[[0-9;?]*[ -/]*[@-~]/g;

const open = new Set();

addEventListener('beforeunload', (event) => {
  if (open.size > 0) event.preventDefault();
});

/** Whether `me` may open a prompt with a debugger of its own. */
export function mayPrompt(me) {
  return ['debug', 'terminal'].every((scope) => me.scopes.has(scope));
}

/** A view with an element `prompt` for a terminal. */
export class TerminalView {
  /** Opens a terminal on `name` with `command`, or returns to the open one. Returns whether it is new. */
  openTerminal(command, name, onEnd) {
    const isNew = !this.terminal?.onEnd;
    if (isNew) {
      this.terminal = new Terminal(command, name, onEnd);
      this.prompt.replaceChildren(this.terminal.element);
    }
    this.terminal.input.focus();
    return isNew;
  }

  /** Whether the view must be kept while another one is shown. */
  isBusy() {
    return Boolean(this.terminal?.onEnd);
  }

  /** Closes the view and its terminal. */
  close() {
    this.terminal?.close();
    this.element.remove();
  }
}

/** A terminal on `name`. `command` is its first line; `onEnd` is called at its end, and null afterwards. */
export class Terminal {
  constructor(command, name, onEnd) {
    this.onEnd = onEnd;
    this.history = [];
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
    this.connect(command);
  }

  connect(command) {
    const address = new URL('v1/terminal', document.baseURI);
    address.protocol = address.protocol.replace('http', 'ws');
    const storedToken = token();
    // The token is not in the address, which may be logged.
    const protocols = ['ray-relay.terminal.v1', ...(storedToken ? [`ray-relay.bearer.${storedToken}`] : [])];
    const decoder = new TextDecoder();
    try {
      this.socket = new WebSocket(address, protocols);
    } catch {
      return this.end('\n*** this token cannot be sent by a browser; use `ray-relay debug`\n');
    }
    this.socket.binaryType = 'arraybuffer';
    this.socket.addEventListener('open', () => {
      open.add(this);
      this.socket.send(`${command}\n`);
    });
    this.socket.addEventListener('message', ({ data }) => {
      this.print(typeof data === 'string' ? data : decoder.decode(data, { stream: true }));
    });
    this.socket.addEventListener('close', ({ wasClean }) => {
      this.end(wasClean ? '' : '\n*** the connection to the relay is lost, or was not allowed\n');
    });
  }

  /** Appends `text`, and keeps the end visible if it was. */
  print(text) {
    const log = this.log;
    const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    const last = log.lastChild;
    const cleaned = clean(text.replace(ESCAPE_SEQUENCES, '').replace(/\r\n?/g, '\n'));
    if (last && last.nodeType === Node.TEXT_NODE && last.length < 4_000) last.appendData(cleaned);
    else log.append(cleaned);
    for (let excess = log.textContent.length - MAX_LOG_CHARS; excess > 0 && log.childNodes.length > 1; ) {
      excess -= log.firstChild.textContent.length;
      log.firstChild.remove();
    }
    if (follows) log.scrollTop = log.scrollHeight;
  }

  enter() {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    const line = this.input.value;
    this.input.value = '';
    if (line && this.history.at(-1) !== line) this.history.push(line);
    if (this.history.length > MAX_HISTORY) this.history.shift();
    this.at = this.history.length;
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
      this.at = Math.min(Math.max(this.at + step, 0), this.history.length);
      this.input.value = this.history[this.at] ?? '';
    } else if (event.key === 'c' && event.ctrlKey && !getSelection().toString()) {
      event.preventDefault();
      this.interrupt();
    }
  }

  /** The task has ended, so nothing answers input any more. */
  taskEnded() {
    if (!this.onEnd || this.ending) return;
    this.ending = setTimeout(() => {
      this.end('\n*** the task has ended\n');
      this.socket?.close();
    }, END_DELAY_MS);
  }

  /** The task has not ended, or the same worker has stopped in another one. */
  taskActive() {
    clearTimeout(this.ending);
    this.ending = null;
  }

  end(reason) {
    if (!this.onEnd) return;
    open.delete(this);
    this.print(`${reason}\n[the terminal is closed]\n`);
    this.line.remove();
    const onEnd = this.onEnd;
    this.onEnd = null;
    onEnd();
  }

  close() {
    this.taskActive();
    this.onEnd = null;
    open.delete(this);
    this.socket?.close();
  }
}
