// "Why is nothing here?" of a relay.

import * as v from 'valibot';

import { List } from '../relay/breakpoint.js';
import { RelayError } from '../relay/endpoint.js';
import type { Relay } from '../relay/relay.js';
import { placeText } from '../relay/saved.js';
import { Findings, textOfDiagnosis, type Probe } from '../view/diagnosis.js';
import type { SnapshotDocuments } from '../view/documents.js';
import { progress } from '../notify.js';

const Total = v.object({ total: v.number() });

/** Checks the chain from here to a paused task, and shows it. */
export async function diagnose(relay: Relay, documents: SnapshotDocuments): Promise<void> {
  const probe = await progress(`Checking ${relay.name}`, () => probed(relay));
  await documents.show(`${relay.saved.id}/diagnosis`, `${relay.name}, checked`, textOfDiagnosis(probe));
}

async function probed(relay: Relay): Promise<Probe> {
  const probe: Probe = { relay: relay.name, place: placeText(relay.saved) };
  const { endpoint } = relay;
  try {
    const me = await relay.check();
    const list = await endpoint.json(List, '/relay/v1/breakpoints');
    const found = { subject: me.subject, scopes: me.scopes, clusters: list.clusters, paused: list.breakpoints.length };
    Object.assign(probe, found);
  } catch (error) {
    const failure = error instanceof RelayError ? error : new RelayError(0, String(error));
    return { ...probe, failure: { status: failure.status, message: failure.message } };
  }
  // Only for administrators, and only where Ray answers.
  const [running, findings] = await Promise.all([
    endpoint.json(Total, '/relay/v1/tasks?limit=1').catch(() => undefined),
    endpoint.json(Findings, '/relay/v1/doctor').catch(() => undefined),
  ]);
  if (running !== undefined) probe.running = running.total;
  if (findings !== undefined) probe.findings = findings;
  return probe;
}
