// The link does what the vectors of the protocol say, as the relay's own implementation does.

import { readFileSync } from 'node:fs';

import { describe, expect, it } from 'vitest';

import { Link } from '../src/tunnel/link.js';

type Content = string | { repeat: string; times: number };
type SentItem = 'end' | 'done' | { bytes: Content } | { text: object };
type Step =
  | 'close'
  | { attach: number }
  | { write: Content }
  | { receive: string }
  | { receive_over_former: string }
  | { receive_text: object }
  | { sends: SentItem[] }
  | { heartbeat: SentItem[] }
  | { reads: string }
  | { received: number }
  | { breaks: string };

interface Vector {
  name: string;
  up_window: number;
  down_window: number;
  steps: Step[];
}

const file = new URL('../../../crates/base/src/wire/resumed/vectors.json', import.meta.url);
const vectors = JSON.parse(readFileSync(file, 'utf8')) as Vector[];

const textOf = (content: Content) => (typeof content === 'string' ? content : content.repeat.repeat(content.times));

class Scene {
  private readonly link: Link;
  private number = 0;
  private read = '';
  private broken: string | undefined;

  constructor(vector: Vector) {
    const reader = {
      bytes: (bytes: Uint8Array) => (this.read += Buffer.from(bytes).toString()),
      end: () => {},
      broken: () => {},
    };
    this.link = new Link(reader, vector.up_window, vector.down_window);
  }

  private attempt(run: () => void): void {
    try {
      run();
    } catch (error) {
      this.broken = (error as Error).message;
    }
  }

  private sent(heartbeat: boolean): SentItem[] {
    const items: SentItem[] = [];
    for (let all = heartbeat; ; all = false) {
      const next = this.link.next(this.number, all);
      if (next.kind === 'bytes') items.push({ bytes: Buffer.from(next.bytes).toString() });
      else if (next.kind === 'message') items.push({ text: next.message });
      else if (next.kind === 'end') items.push('end');
      else return next.kind === 'done' ? [...items, 'done'] : items;
    }
  }

  step(step: Step): void {
    if (step === 'close') this.link.close();
    else if ('attach' in step) this.attempt(() => (this.number = this.link.attach(step.attach)));
    else if ('write' in step) this.link.write(Buffer.from(textOf(step.write)));
    else if ('receive' in step) this.attempt(() => this.link.receive(this.number, Buffer.from(step.receive)));
    else if ('receive_over_former' in step) this.link.receive(this.number - 1, Buffer.from(step.receive_over_former));
    else if ('receive_text' in step) {
      this.attempt(() => this.link.receiveText(this.number, JSON.stringify(step.receive_text)));
    } else if ('sends' in step) expect(this.sent(false)).toEqual(step.sends.map(plain));
    else if ('heartbeat' in step) expect(this.sent(true)).toEqual(step.heartbeat.map(plain));
    else if ('reads' in step) {
      expect(this.read).toBe(step.reads);
      this.read = '';
    } else if ('received' in step) expect(this.link.received).toBe(step.received);
    else {
      expect(this.broken).toBe(step.breaks);
      this.broken = undefined;
    }
  }

  end(): void {
    expect(this.broken).toBeUndefined();
  }
}

const plain = (item: SentItem): SentItem =>
  typeof item === 'object' && 'bytes' in item ? { bytes: textOf(item.bytes) } : item;

describe('a link', () => {
  it.each(vectors)('$name', (vector) => {
    const scene = new Scene(vector);
    for (const step of vector.steps) scene.step(step);
    scene.end();
  });
});
