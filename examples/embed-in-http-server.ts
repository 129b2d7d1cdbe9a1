/**
 * A host with an HTTP server of its own: pages at `/`, the gateway under `/sync-api`, and tickets for the sockets of browsers,
 * which cannot send an Authorization header there. `npx tsx examples/embed-in-http-server.ts`
 */
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { fileURLToPath } from 'node:url';
import { type AuthIdentity, type AuthRequest, createGateway, type SchemaDocument } from '../src/index.ts';

const TICKET_LIFETIME_MS = 30_000;

/** Stands for the host's session store. */
const SESSIONS: Readonly<Record<string, { readonly userId: string; readonly tenantId: string }>> = {
  'session-of-ada': { userId: 'ada', tenantId: 'acme' },
};

interface Ticket {
  readonly identity: AuthIdentity;
  readonly expiresAtMs: number;
}

const tickets = new Map<string, Ticket>();

function sessionIdentity(authorization: string | null | undefined): AuthIdentity | null {
  const session = SESSIONS[/^Bearer (.+)$/.exec(authorization ?? '')?.[1] ?? ''];
  return session === undefined ? null : { actorId: session.userId, partition: session.tenantId };
}

/** One use, a short life: a URL ends up in logs. */
function redeemTicket(url: string): AuthIdentity | null {
  const id = new URL(url, 'http://host.invalid').searchParams.get('ticket') ?? '';
  const ticket = tickets.get(id);
  tickets.delete(id);
  return ticket !== undefined && ticket.expiresAtMs > Date.now() ? ticket.identity : null;
}

function issueTicket(identity: AuthIdentity): string {
  const id = randomBytes(16).toString('base64url');
  tickets.set(id, { identity, expiresAtMs: Date.now() + TICKET_LIFETIME_MS });
  return id;
}

export async function startHost(port: number): Promise<{ server: Server; close(): Promise<void> }> {
  const gateway = await createGateway({
    schema: JSON.parse(readFileSync(new URL('./schema.json', import.meta.url), 'utf8')) as SchemaDocument,
    storage: { path: ':memory:' },
    mount: '/sync-api',
    authenticate: ({ kind, url, headers }: AuthRequest) =>
      kind === 'upgrade' ? redeemTicket(url) : sessionIdentity(headers.get('authorization')),
    // Stands for a look into the host's memberships.
    resolveScopes: ({ actorId }) => ({ project_id: actorId === 'ada' ? ['p1', 'p2'] : [] }),
  });

  const server = createServer((req, res) => {
    // Whatever is not the gateway's comes back to the host.
    gateway.nodeHandler(req, res, () => {
      if (req.method === 'POST' && req.url === '/tickets') {
        const identity = sessionIdentity(req.headers.authorization);
        res.writeHead(identity === null ? 401 : 200, { 'content-type': 'application/json' });
        res.end(JSON.stringify(identity === null ? {} : { ticket: issueTicket(identity) }));
        return;
      }
      res.writeHead(200, { 'content-type': 'text/html' }).end('<h1>A page of the host</h1>');
    });
  });
  gateway.attach(server);
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));

  const close = async (): Promise<void> => {
    // First the gateway, while the server still answers its readiness probe; then the server.
    await gateway.close();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  };
  return { server, close };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const host = await startHost(8080);
  process.stdout.write('http://127.0.0.1:8080\n');
  process.once('SIGTERM', () => void host.close());
}
