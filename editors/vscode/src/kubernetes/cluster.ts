// A Kubernetes cluster by the user's kubeconfig: requests to its API server. Loaded only when a relay there is used.

import * as http from 'node:http';
import * as https from 'node:https';

import { KubeConfig } from '@kubernetes/client-node';
import * as v from 'valibot';

import { within } from '../deadline.js';
import { KubeError } from './error.js';
import { codeOf, networkCause } from '../relay/endpoint.js';
import { oneLine } from '../text.js';

const REQUEST_TIMEOUT_MS = 10_000;

/** Time limit for a credential plugin: it may ask a user to log in. */
const LOGIN_TIMEOUT_MS = 120_000;
const MAX_ANSWER_BYTES = 16 * 1024 * 1024;

/** What to do about a missing right. */
export const ROLES =
  'ask your cluster administrator for the roles of a ray-relay user (`ray-relay help laptop` has them).';

const NO_KUBECONFIG = 'There is no kubeconfig that can be read: KUBECONFIG, or .kube/config in your home folder.';

const Status = v.object({ message: v.fallback(v.string(), '') });

/** The cluster of one context. */
export class KubeCluster {
  private constructor(private readonly config: KubeConfig) {}

  /** The contexts of the kubeconfig, the current one first. Throws a {@link KubeError}. */
  static contexts(): { name: string; namespace: string; cluster: string }[] {
    const config = loaded();
    const current = config.getCurrentContext();
    const all = config
      .getContexts()
      .map(({ name, namespace, cluster }) => ({ name, namespace: namespace ?? 'default', cluster }));
    return all.sort((a, b) => Number(b.name === current) - Number(a.name === current));
  }

  /** Throws a {@link KubeError}. */
  static of(context: string): KubeCluster {
    const config = loaded();
    if (config.getContextObject(context) === null) {
      throw new KubeError(`The kubeconfig has no context ${oneLine(context, 100)} any more.`);
    }
    config.setCurrentContext(context);
    return new KubeCluster(config);
  }

  /** The address of `path` at the API server, and the options that authenticate a connection to it. */
  async target(path: string): Promise<{ url: URL; options: https.RequestOptions }> {
    const server = this.config.getCurrentCluster()?.server;
    if (server === undefined) throw new KubeError('The context names a cluster that the kubeconfig does not have.');
    const url = new URL(server.replace(/\/+$/, '') + path);
    const options: https.RequestOptions = {};
    try {
      // Runs the credential plugin, if there is one.
      const late = new KubeError('Your login to Kubernetes does not end: try `kubectl get pods` in a terminal.');
      await within(this.config.applyToHTTPSOptions(options), LOGIN_TIMEOUT_MS, late);
    } catch (error) {
      if (error instanceof KubeError) throw error;
      // The message may quote what a plugin has printed.
      throw new KubeError('Your login to Kubernetes fails: try `kubectl get pods` in a terminal.');
    }
    return { url, options };
  }

  /** The bearer token that the kubeconfig has for the API server, if it has one. */
  async ownToken(): Promise<string | undefined> {
    const { options } = await this.target('/');
    const headers = options.headers as Record<string, unknown> | undefined;
    const value = headers?.Authorization ?? headers?.authorization;
    return typeof value === 'string' && value.startsWith('Bearer ') ? value.slice('Bearer '.length) : undefined;
  }

  /** The JSON of a response. `doing` is what a user may lack the right to. Throws a {@link KubeError}. */
  async json<T>(schema: v.GenericSchema<unknown, T>, path: string, doing: string, body?: unknown): Promise<T> {
    const { url, options } = await this.target(path);
    const [status, text] = await request(url, options, body === undefined ? undefined : JSON.stringify(body));
    if (status === 200 || status === 201) {
      try {
        return v.parse(schema, JSON.parse(text));
      } catch {
        throw new KubeError("The answer is not a Kubernetes API server's.");
      }
    }
    if (status === 401)
      throw new KubeError('Kubernetes rejected your login. Log in again as you do for kubectl, and retry.');
    if (status === 403) throw new KubeError(`You may not ${doing}: ${ROLES}`, true);
    // Its message names what does not exist.
    if (status === 404) throw new KubeError(`Kubernetes does not find it: ${oneLine(messageOf(text), 200)}.`);
    throw new KubeError(`Kubernetes answers ${status}: ${oneLine(messageOf(text), 200)}`);
  }
}

function messageOf(text: string): string {
  try {
    return v.parse(Status, JSON.parse(text)).message;
  } catch {
    return 'not a sentence';
  }
}

function loaded(): KubeConfig {
  const config = new KubeConfig();
  try {
    config.loadFromDefault();
  } catch {
    throw new KubeError(NO_KUBECONFIG);
  }
  // Without a file there is one for a server on this machine.
  if (config.getCurrentContext() === 'loaded-context') throw new KubeError(NO_KUBECONFIG);
  // `kubectl proxy` speaks http, which has no certificate to verify.
  config.clusters = config.clusters.map((cluster) =>
    cluster.server.startsWith('http:') ? { ...cluster, skipTLSVerify: true } : cluster,
  );
  return config;
}

function unreached(error: Error): KubeError {
  const isUntrusted = /CERT|UNABLE_TO_VERIFY/.test(codeOf(error));
  const why = isUntrusted
    ? 'its certificate is not signed by the authority that your kubeconfig has for it'
    : (networkCause(error) ?? oneLine(error.message, 200));
  const next = 'Does `kubectl get pods` work with this context? Check your VPN, and that the cluster still exists.';
  return new KubeError(`The API server is not reached: ${why}. ${next}`);
}

function request(url: URL, options: https.RequestOptions, body: string | undefined): Promise<[number, string]> {
  const json = body === undefined ? {} : { 'Content-Type': 'application/json' };
  const headers = { ...(options.headers as Record<string, string> | undefined), ...json };
  return new Promise((resolve, reject) => {
    const method = body === undefined ? 'GET' : 'POST';
    // `kubectl proxy` speaks http.
    const { request: send } = url.protocol === 'http:' ? http : https;
    const sent = send(url, { ...options, headers, method }, (response) => {
      const chunks: Buffer[] = [];
      let length = 0;
      response.on('data', (chunk: Buffer) => {
        length += chunk.length;
        if (length > MAX_ANSWER_BYTES) sent.destroy(new Error('its answer is too large'));
        else chunks.push(chunk);
      });
      response.on('end', () => resolve([response.statusCode ?? 0, Buffer.concat(chunks).toString('utf8')]));
      response.on('error', (error) => sent.destroy(error));
    });
    const timer = setTimeout(() => sent.destroy(new Error('there is no answer')), REQUEST_TIMEOUT_MS);
    sent.on('close', () => clearTimeout(timer));
    sent.on('error', (error) => reject(unreached(error)));
    sent.end(body);
  });
}
