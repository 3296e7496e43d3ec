// Why nothing is in the list: each link of the chain, and what to do about the first that fails.

import { describe, expect, it } from 'vitest';

import { chainOf, textOfDiagnosis, type Probe } from '../src/view/diagnosis.js';

const CLUSTER = { name: 'train', ray_version: '2.60.0', trouble: null, complete: true, isRead: true, pending: false };
const PROBE: Probe = {
  relay: 'prod',
  place: 'https://relay',
  subject: 'ann',
  scopes: ['list', 'debug'],
  clusters: [CLUSTER],
  paused: 3,
};

const bad = (change: Partial<Probe>) => chainOf({ ...PROBE, ...change }).filter(({ outcome }) => outcome !== 'good');

describe('the chain', () => {
  it('is good where tasks are paused', () => {
    expect(bad({})).toEqual([]);
  });

  it('ends where the relay does not answer', () => {
    const failure = { status: 0, message: 'The relay does not answer: nothing listens at its address.' };
    expect(chainOf({ ...PROBE, failure })).toMatchObject([{ outcome: 'bad', text: failure.message }]);
  });

  it.each([
    [401, 'Change the Token'],
    [403, 'Ask the operator'],
  ])('ends where it answers %i, with what to do', (status, next) => {
    const [answers, refused, ...more] = chainOf({ ...PROBE, failure: { status, message: 'your token has expired' } });
    expect(answers?.outcome).toBe('good');
    expect(refused).toMatchObject({ outcome: 'bad', text: 'your token has expired' });
    expect(refused?.next).toContain(next);
    expect(more).toEqual([]);
  });

  it('says what the user may not do', () => {
    expect(bad({ scopes: [] })).toMatchObject([{ outcome: 'bad', text: 'You are ann, and may not list tasks.' }]);
    expect(bad({ scopes: ['list'], subject: null })[0]?.text).toBe(
      'You are anonymous, and may list tasks, but not attach to them.',
    );
    expect(bad({ scopes: ['list', 'view'] })).toEqual([]);
  });

  it('has the trouble of each cluster', () => {
    const clusters = [CLUSTER, { ...CLUSTER, name: 'old', trouble: 'no answer' }, { ...CLUSTER, pending: true }];
    const outcomes = bad({ clusters }).map(({ outcome, text }) => [outcome, text]);
    expect(outcomes).toEqual([
      ['bad', 'Cluster old: no answer'],
      ['note', 'Cluster train: the Ray head is starting.'],
    ]);
  });

  it.each([
    [undefined, 'Nothing is paused that you may see.'],
    [1, 'Nothing is paused that you may see. 1 task runs.'],
    [4, 'Nothing is paused that you may see. 4 tasks run.'],
  ])('says how to pause a task where %s run', (running, expected) => {
    const [link] = bad({ paused: 0, running });
    expect(link).toMatchObject({ outcome: 'note', text: expected });
    expect(link?.next).toContain('breakpoint()');
  });

  it('has the findings of the relay, for those who may see them', () => {
    const findings = [
      { severity: 'ok', says: 'the relay serves', next: null },
      { severity: 'error', says: 'the head is down', next: 'start it' },
    ];
    expect(bad({ findings: { findings } })).toEqual([{ outcome: 'bad', text: 'the head is down', next: 'start it' }]);
  });
});

it('a hostile text stays in its line', () => {
  const clusters = [{ ...CLUSTER, trouble: 'x\nok    All is well.' }];
  expect(textOfDiagnosis({ ...PROBE, clusters }).split('\n')).toContain('FAIL  Cluster train: x ok All is well.');
});
