// A relay in Kubernetes: how to reach it, and who the user is there.

import * as http from 'node:http';
import * as https from 'node:https';
import type { Duplex } from 'node:stream';
import * as tls from 'node:tls';

import * as v from 'valibot';

import type { ReachedRelay } from '../relay/endpoint.js';
import type { KubePlace } from '../relay/saved.js';
import { datedToken, type DatedToken } from '../relay/credential.js';
import { KubeCluster } from './cluster.js';
import { KubeError } from './error.js';
import { forwarded } from './forward.js';
import { findServices, readyPod } from './service.js';

/** The audience that relays expect by default. */
const AUDIENCE = 'ray-relay';

/** The requested lifetime of a token of a ServiceAccount. */
const TOKEN_SECONDS = 3600;

/** Time limit for TLS to the relay. */
const TLS_TIMEOUT_MS = 15_000;

/** The name that every relay accepts as its own. */
const HOST = 'localhost';

const TokenRequest = v.object({ status: v.object({ token: v.string(), expirationTimestamp: v.string() }) });

export const contexts = () => KubeCluster.contexts();

/** The relays that `context` has, as far as the user may see. Throws a {@link KubeError}. */
export async function relaysIn(context: string, namespace: string): Promise<KubePlace[]> {
  const services = await findServices(KubeCluster.of(context), namespace);
  return services.map(({ metadata }) => ({ context, namespace: metadata.namespace, service: metadata.name }));
}

/** The base URL of the relay, and how to reach it; `ca` is PEM text of authorities. Throws a {@link KubeError}. */
export async function reach(place: KubePlace, ca: string | undefined): Promise<ReachedRelay> {
  const cluster = KubeCluster.of(place.context);
  const pod = await readyPod(cluster, place.namespace, place.service);
  const agent = forwardAgent(place, pod.isHttps ? { ca } : undefined);
  const url = new URL(`${pod.isHttps ? 'https' : 'http'}://${HOST}:${pod.port}`);
  return { url, options: { agent } };
}

/** The token of the user's own login. Throws a {@link KubeError}. */
export async function ownToken(place: KubePlace): Promise<DatedToken> {
  const token = await KubeCluster.of(place.context).ownToken();
  if (token !== undefined) return datedToken(token);
  throw new KubeError(
    'Your login to Kubernetes has no token, but a certificate: ask the operator of the relay for a token.',
  );
}

/** A new token of a ServiceAccount, `NAMESPACE/NAME`. Throws a {@link KubeError}. */
export async function accountToken(place: KubePlace, account: string): Promise<DatedToken> {
  const [namespace, name] = account.includes('/') ? account.split('/', 2) : [place.namespace, account];
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace ?? '')}/serviceaccounts/${encodeURIComponent(name ?? '')}/token`;
  const body = {
    apiVersion: 'authentication.k8s.io/v1',
    kind: 'TokenRequest',
    spec: { audiences: [AUDIENCE], expirationSeconds: TOKEN_SECONDS },
  };
  const doing = `make tokens of the ServiceAccount ${account}`;
  const { status } = await KubeCluster.of(place.context).json(TokenRequest, path, doing, body);
  return { token: status.token, expires: Date.parse(status.expirationTimestamp) };
}

/** Names that a relay's certificate may have: it is reached through a pod of its Service. */
function namesOf({ namespace, service }: KubePlace): [string, ...string[]] {
  return [`${service}.${namespace}.svc`, `${service}.${namespace}.svc.cluster.local`, HOST];
}

/** The error of the first of `names`, if `certificate` has none of them. */
function checkNames(names: [string, ...string[]], certificate: tls.PeerCertificate): Error | undefined {
  const isValid = names.some((name) => tls.checkServerIdentity(name, certificate) === undefined);
  return isValid ? undefined : tls.checkServerIdentity(names[0], certificate);
}

/** A connection to any ready pod: the one before may be gone, and so may the login that the kubeconfig had then. */
async function connect(place: KubePlace): Promise<Duplex> {
  const cluster = KubeCluster.of(place.context);
  return forwarded(cluster, await readyPod(cluster, place.namespace, place.service));
}

/** An agent whose connections are forwarded; `secure`: with TLS to the relay, by `ca` if it is given. */
function forwardAgent(place: KubePlace, secure: { ca: string | undefined } | undefined): http.Agent {
  const agent = secure === undefined ? new http.Agent({ keepAlive: false }) : new https.Agent({ keepAlive: false });
  agent.createConnection = (_options: object, made?: (error: Error | null, stream: Duplex) => void) => {
    const fail = (error: unknown) => made?.(error as Error, undefined as unknown as Duplex);
    connect(place).then((socket) => {
      if (secure === undefined) return made?.(null, socket);
      const encrypted = tls.connect({
        socket,
        servername: HOST,
        checkServerIdentity: (_host, certificate) => checkNames(namesOf(place), certificate),
        ...(secure.ca === undefined ? {} : { ca: secure.ca }),
      });
      encrypted.once('secureConnect', () => made?.(null, encrypted));
      encrypted.once('error', fail);
      encrypted.setTimeout(TLS_TIMEOUT_MS, () => encrypted.destroy(new KubeError('The relay does not answer TLS.')));
      encrypted.once('secureConnect', () => encrypted.setTimeout(0));
    }, fail);
    return undefined;
  };
  return agent;
}
