// The relay's Service, and a ready pod behind it, as `kubectl port-forward` finds them.

import * as v from 'valibot';

import { KubeError } from './error.js';
import type { KubeCluster } from './cluster.js';

/** The label of the relay's Service in the manifests and the chart. */
const RELAY_LABEL = 'app.kubernetes.io/name=ray-relay';

/** The name of its port there. */
const RELAY_PORT_NAME = 'relay';

/** Largest number of Services or pods that are listed. */
const LIST_LIMIT = 200;

const Named = v.object({ name: v.string(), namespace: v.string() });
const PortTarget = v.optional(v.union([v.number(), v.string()]));

const ServicePort = v.object({
  name: v.optional(v.string()),
  port: v.number(),
  targetPort: PortTarget,
  appProtocol: v.optional(v.string()),
});
type ServicePort = v.InferOutput<typeof ServicePort>;

export const Service = v.object({
  metadata: Named,
  spec: v.object({
    selector: v.optional(v.record(v.string(), v.string()), {}),
    ports: v.optional(v.array(ServicePort), []),
  }),
});
export type Service = v.InferOutput<typeof Service>;

const Container = v.object({
  ports: v.optional(v.array(v.object({ name: v.optional(v.string()), containerPort: v.number() })), []),
  readinessProbe: v.optional(
    v.object({ httpGet: v.optional(v.object({ port: PortTarget, scheme: v.optional(v.string()) })) }),
  ),
});
type Container = v.InferOutput<typeof Container>;

export const Pod = v.object({
  metadata: v.object({ name: v.string(), deletionTimestamp: v.optional(v.string()) }),
  spec: v.object({ containers: v.array(Container), initContainers: v.optional(v.array(Container), []) }),
  status: v.optional(
    v.object({ conditions: v.optional(v.array(v.object({ type: v.string(), status: v.string() })), []) }),
  ),
});
export type Pod = v.InferOutput<typeof Pod>;

/** A ready pod of the relay. */
export interface RelayPod {
  namespace: string;
  name: string;
  port: number;
  isHttps: boolean;
}

/** The relays' Services that the user may see: in all namespaces, or else in `namespace`. Throws a {@link KubeError}. */
export async function findServices(cluster: KubeCluster, namespace: string): Promise<Service[]> {
  const list = v.object({ items: v.array(Service) });
  const query = `services?labelSelector=${encodeURIComponent(RELAY_LABEL)}&limit=${LIST_LIMIT}`;
  try {
    return (await cluster.json(list, `/api/v1/${query}`, 'list Services')).items;
  } catch (error) {
    if (!(error instanceof KubeError && error.isForbidden)) throw error;
    const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/${query}`;
    return (await cluster.json(list, path, `list Services in the namespace ${namespace}`)).items;
  }
}

/** A ready pod behind a Service: any of them. Throws a {@link KubeError}. */
export async function readyPod(cluster: KubeCluster, namespace: string, name: string): Promise<RelayPod> {
  const base = `/api/v1/namespaces/${encodeURIComponent(namespace)}`;
  const of = `in the namespace ${namespace}`;
  const service = await cluster.json(Service, `${base}/services/${encodeURIComponent(name)}`, `get Services ${of}`);
  const port = relayPort(service.spec.ports);
  const selector = Object.entries(service.spec.selector).map(([key, value]) => `${key}=${value}`);
  if (port === undefined || selector.length === 0) throw new KubeError(`The Service ${name} is not a relay's.`);
  const query = `pods?labelSelector=${encodeURIComponent(selector.join(','))}&limit=${LIST_LIMIT}`;
  const pods = await cluster.json(v.object({ items: v.array(Pod) }), `${base}/${query}`, `list pods ${of}`);
  const ready = pods.items.filter(isReady).flatMap((pod) => relayPod(pod, port, namespace) ?? []);
  const chosen = ready[Math.floor(Math.random() * ready.length)];
  if (chosen === undefined) {
    throw new KubeError(`No pod of the Service ${name} ${of} is ready: \`kubectl get pods -n ${namespace}\` says why.`);
  }
  return chosen;
}

/** The relay's port of its Service: the one of that name, or the only one. */
export function relayPort(ports: ServicePort[]): ServicePort | undefined {
  return ports.find((port) => port.name === RELAY_PORT_NAME) ?? (ports.length === 1 ? ports[0] : undefined);
}

/** Whether the pod is ready, by the rules of an EndpointSlice. */
function isReady(pod: Pod): boolean {
  const conditions = pod.status?.conditions ?? [];
  const isReady = conditions.some((one) => one.type === 'Ready' && one.status === 'True');
  return isReady && pod.metadata.deletionTimestamp === undefined;
}

export function relayPod(pod: Pod, port: ServicePort, namespace: string): RelayPod | undefined {
  const containers = [...pod.spec.containers, ...pod.spec.initContainers];
  const number = portNumber(containers, port.targetPort ?? port.port);
  if (number === undefined) return undefined;
  const isHttps = port.appProtocol === 'https' || containers.some((one) => isProbedByHttps(one, number));
  return { namespace, name: pod.metadata.name, port: number, isHttps };
}

/** The kubelet's readiness probe is the only setting that must say whether the relay uses TLS. */
function isProbedByHttps(container: Container, port: number): boolean {
  const probe = container.readinessProbe?.httpGet;
  if (probe?.scheme !== 'HTTPS' || probe.port === undefined) return false;
  return portNumber([container], probe.port) === port;
}

/** The number of a port that is named or numbered. */
function portNumber(containers: Container[], port: number | string): number | undefined {
  if (typeof port === 'number') return port;
  return containers.flatMap((one) => one.ports).find((one) => one.name === port)?.containerPort;
}
