// The relay's Service and its pods, resolved as the relay's own client does (crates/kube/src/service.rs).

import * as v from 'valibot';
import { describe, expect, it } from 'vitest';

import type { KubeCluster } from '../src/kubernetes/cluster.js';
import { Pod, readyPod, relayPod, relayPort, Service } from '../src/kubernetes/service.js';

const NAMES = { metadata: { name: 'ray-relay', namespace: 'ray' } };
const service = (ports: object[], selector: object = { app: 'relay' }) =>
  v.parse(Service, { ...NAMES, spec: { selector, ports } });
const port = (value: object) => service([value]).spec.ports[0]!;
const pod = (value: object) => v.parse(Pod, value);

const RELAY = { name: 'relay', containerPort: 5678 };
const METRICS = { name: 'metrics', containerPort: 9 };

describe('the port of a pod', () => {
  const two = pod({
    metadata: { name: 'ray-relay-a' },
    spec: {
      containers: [
        { name: 'other', ports: [METRICS] },
        { name: 'ray-relay', ports: [RELAY] },
      ],
    },
  });

  it.each<[object, [number, boolean] | undefined]>([
    [{ port: 80, targetPort: 'relay' }, [5678, false]],
    [{ port: 80, targetPort: 7000 }, [7000, false]],
    [{ port: 80 }, [80, false]],
    [{ port: 80, targetPort: 'none' }, undefined],
    [{ port: 80, targetPort: 'relay', appProtocol: 'https' }, [5678, true]],
    [{ port: 80, targetPort: 'relay', appProtocol: 'http' }, [5678, false]],
  ])('is resolved as kubectl does: %j', (given, expected) => {
    const found = relayPod(two, port(given), 'ray');
    expect(found && [found.port, found.isHttps]).toEqual(expected);
  });

  it('comes with the name of the pod and its namespace', () => {
    const found = relayPod(two, port({ port: 80, targetPort: 'relay' }), 'ray');
    expect(found).toEqual({ namespace: 'ray', name: 'ray-relay-a', port: 5678, isHttps: false });
  });

  it('may be that of a sidecar', () => {
    const sidecar = pod({ metadata: { name: 'a' }, spec: { containers: [{}], initContainers: [{ ports: [RELAY] }] } });
    expect(relayPod(sidecar, port({ port: 80, targetPort: 'relay' }), 'ray')?.port).toBe(5678);
  });
});

describe('a probe of the kubelet', () => {
  it.each([
    [{ port: 'relay', scheme: 'HTTPS' }, true],
    [{ port: 5678, scheme: 'HTTPS' }, true],
    [{ port: 'relay', scheme: 'HTTP' }, false],
    [{ port: 'relay' }, false],
    [{ port: 9, scheme: 'HTTPS' }, false],
    [{ port: 'metrics', scheme: 'HTTPS' }, false],
  ])('says whether the relay uses TLS: %j', (httpGet, isHttps) => {
    const container = { name: 'ray-relay', ports: [RELAY, METRICS], readinessProbe: { httpGet } };
    const probed = pod({ metadata: { name: 'a' }, spec: { containers: [container] } });
    expect(relayPod(probed, port({ port: 5678, targetPort: 'relay' }), 'ray')?.isHttps).toBe(isHttps);
  });
});

describe('the port of a Service', () => {
  const relay = port({ name: 'relay', port: 5678 });
  const metrics = port({ name: 'metrics', port: 9 });

  it('is the one called relay among several, or the only one', () => {
    expect(relayPort([metrics, relay])).toBe(relay);
    expect(relayPort([metrics])).toBe(metrics);
    expect(relayPort([metrics, metrics])).toBeUndefined();
    expect(relayPort([])).toBeUndefined();
  });
});

describe('a ready pod', () => {
  const spec = { containers: [{ ports: [RELAY] }] };
  const status = (value: string) => ({ conditions: [{ type: 'Ready', status: value }] });
  const terminating = { name: 'ends', deletionTimestamp: '2026-01-01T00:00:00Z' };
  const unready = [
    { metadata: { name: 'starts' }, spec, status: status('False') },
    { metadata: { name: 'new' }, spec },
    { metadata: terminating, spec, status: status('True') },
  ];
  const ready = { metadata: { name: 'ready' }, spec, status: status('True') };

  /** A cluster that answers with these, and notes what it was asked for. */
  function clusterOf(one: Service, pods: object[], asked: string[] = []): KubeCluster {
    const json = (schema: v.GenericSchema, path: string) => {
      asked.push(path);
      return Promise.resolve(v.parse(schema, path.includes('/pods?') ? { items: pods } : one));
    };
    return { json } as unknown as KubeCluster;
  }
  const relays = service([{ name: 'relay', port: 80, targetPort: 'relay' }], { app: 'relay', tier: 'a' });

  it('is the one that does not start and does not end', async () => {
    const asked: string[] = [];
    const found = await readyPod(clusterOf(relays, [...unready, ready], asked), 'ray', 'ray-relay');
    expect(found).toEqual({ namespace: 'ray', name: 'ready', port: 5678, isHttps: false });
    expect(asked[0]).toBe('/api/v1/namespaces/ray/services/ray-relay');
    expect(asked[1]).toContain(`/api/v1/namespaces/ray/pods?labelSelector=${encodeURIComponent('app=relay,tier=a')}&`);
  });

  it('is missed in words', async () => {
    await expect(readyPod(clusterOf(relays, unready), 'ray', 'ray-relay')).rejects.toThrow(/No pod of the Service/);
  });

  it('is not looked for behind a Service that selects no pods, or has several ports', async () => {
    const several = service([{ port: 1 }, { port: 2 }]);
    for (const other of [service([{ port: 1 }], {}), several]) {
      await expect(readyPod(clusterOf(other, [ready]), 'ray', 'x')).rejects.toThrow('The Service x is not a relay');
    }
  });
});
