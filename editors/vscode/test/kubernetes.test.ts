// A relay in Kubernetes, through a stand-in for its API server.

import * as http from 'node:http';

import { afterEach, beforeEach, describe, expect, it } from 'vitest';

import { accountToken, contexts, ownToken, reach, relaysIn } from '../src/kubernetes/relay.js';
import { Endpoint, type ReachedRelay } from '../src/relay/endpoint.js';
import { Tunnel, type TunnelObserver } from '../src/tunnel/tunnel.js';
import { StandInApi } from './support/api.js';
import { EchoRelay } from './support/peer.js';
import { TlsFront } from './support/tls.js';

const PLACE = { context: 'dev', namespace: 'ray-relay', service: 'ray-relay' };

const QUIET: TunnelObserver = { bytes: () => {}, end: () => {}, broken: () => {}, lost: () => {}, resumed: () => {} };

const endpointOf = (url: URL, options: ReachedRelay['options']) =>
  new Endpoint(
    () => Promise.resolve({ url, options }),
    () => Promise.resolve('token-for-the-relay'),
  );

let relay: EchoRelay;
let api: StandInApi;

beforeEach(async () => {
  relay = await EchoRelay.start();
  api = await StandInApi.start(relay.port);
});

afterEach(() => {
  api.stop();
  relay.stop();
});

describe('a relay in Kubernetes', () => {
  it('is found by the label of its Service, as the user of the context', async () => {
    expect(contexts()).toEqual([{ name: 'dev', namespace: 'ml', cluster: 'c' }]);
    expect(await relaysIn('dev', 'ml')).toEqual([PLACE]);
    expect(api.requests[0]?.url).toBe('/api/v1/services?labelSelector=app.kubernetes.io%2Fname%3Dray-relay&limit=200');
    expect(api.requests[0]?.headers.authorization).toBe('Bearer login-of-ann');
  });

  it('is looked for in the namespace of the context where all are too many to ask for', async () => {
    api.refusals.set('v1/services?', 403);
    await relaysIn('dev', 'ml');
    expect(api.requests[1]?.url).toContain('/namespaces/ml/services?');
  });

  it('has a tunnel through port-forwards, which outlives them', { timeout: 30_000 }, async () => {
    const { url, options } = await reach(PLACE, undefined);
    expect(String(url)).toBe('http://localhost:5678/');
    const received: number[] = [];
    const tunnel = await Tunnel.open(endpointOf(url, options), '0123456789abcdef.0123456789abcdef', {
      ...QUIET,
      bytes: (bytes) => received.push(...bytes),
    });
    const sent = Array.from({ length: 200_000 }, (_, at) => (at * 7) % 251);
    tunnel.write(Buffer.from(sent.slice(0, 100_000)));
    await expect.poll(() => received.length, { timeout: 10_000 }).toBe(100_000);
    api.cut();
    tunnel.write(Buffer.from(sent.slice(100_000)));
    await expect.poll(() => received.length, { timeout: 10_000 }).toBe(200_000);
    expect(received).toEqual(sent);
    // What is for the relay does not reach the API server, and the other way round.
    expect(relay.requests.map((request) => request.headers.authorization)).toContain('Bearer token-for-the-relay');
    expect(api.requests.some((request) => request.headers.authorization === 'Bearer token-for-the-relay')).toBe(false);
    tunnel.close();
  });

  it.each([
    ['localhost', undefined],
    ['ray-relay.ray-relay.svc', undefined],
    ['other.ray-relay.svc', "is not in the cert's altnames: DNS:other.ray-relay.svc"],
  ])('is reached by TLS with a certificate for %s; the problem is %j', async (name, problem) => {
    const secure = await TlsFront.start(name, relay.port);
    const https = await StandInApi.start(secure.port);
    https.appProtocol = 'https';
    try {
      const opened = async (ca: string | undefined) => {
        const { url, options } = await reach(PLACE, ca);
        expect(String(url)).toBe('https://localhost:5678/');
        return Tunnel.open(endpointOf(url, options), '0123456789abcdef.0123456789abcdef', QUIET);
      };
      await expect(opened(undefined)).rejects.toThrow('its certificate is self-signed. Choose its CA file.');
      if (problem === undefined) (await opened(secure.certificate)).close();
      else await expect(opened(secure.certificate)).rejects.toThrow(problem);
      // Nothing is sent before the certificate is verified.
      const sent = relay.requests.map((request) => request.headers.authorization);
      expect(sent).toEqual(problem === undefined ? ['Bearer token-for-the-relay'] : []);
    } finally {
      https.stop();
      secure.stop();
    }
  });

  it('takes the token of a login, or of a ServiceAccount', async () => {
    expect(await ownToken(PLACE)).toEqual({ token: 'login-of-ann' });
    expect(await accountToken(PLACE, 'ml/ann')).toEqual({
      token: 'account-token',
      expires: Date.parse('2030-01-02T03:04:05Z'),
    });
    expect(api.requests.at(-1)?.url).toBe('/api/v1/namespaces/ml/serviceaccounts/ann/token');
  });
});

describe('an error', () => {
  it.each([
    ['services', 401, 'Kubernetes rejected your login.'],
    ['services/', 403, 'You may not get Services in the namespace ray-relay: ask'],
    ['services/', 404, 'Kubernetes does not find it: no services/.'],
    ['pods', 403, 'You may not list pods in the namespace ray-relay: ask'],
    ['services', 500, 'Kubernetes answers 500: no services'],
  ])('of %s with %i is a sentence', async (part, status, expected) => {
    api.refusals.set(part, status);
    await expect(reach(PLACE, undefined)).rejects.toMatchObject({
      name: 'KubeError',
      message: expect.stringContaining(expected) as string,
    });
  });

  it('says that no pod is ready', async () => {
    api.isPodReady = false;
    await expect(reach(PLACE, undefined)).rejects.toThrow(
      'No pod of the Service ray-relay in the namespace ray-relay is ready',
    );
  });

  it('of the port-forward names what is missing', async () => {
    const { url, options } = await reach(PLACE, undefined);
    api.refusals.set('portforward', 403);
    const failed = new Promise((resolve) => http.get(url, options).on('error', resolve));
    expect(await failed).toMatchObject({
      name: 'KubeError',
      message: expect.stringContaining('forward ports') as string,
    });
  });

  it('says that a context is gone, or that there is no kubeconfig', async () => {
    await expect(relaysIn('gone', 'ml')).rejects.toThrow('The kubeconfig has no context gone any more.');
    process.env.KUBECONFIG = '/nowhere/config';
    expect(() => contexts()).toThrow('There is no kubeconfig that can be read');
  });
});
