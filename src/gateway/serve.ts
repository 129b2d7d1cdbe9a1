/** `tidegate serve`: a gateway from a configuration, until the process is asked to end. */
import type { SchemaDocument } from '../protocol/schema-document.ts';
import { createStaticTokens } from './auth.ts';
import { type CliIo, EXIT, type ExitCode } from './cli-io.ts';
import type { Config } from './config.ts';
import { ConfigError } from './config-error.ts';
import { readSchemaDocument, storageOptionOf } from './config-storage.ts';
import { createGateway } from './gateway.ts';
import type { GatewayOptions } from './gateway-options.ts';
import { createJwtAuth, type JwtOptions } from './jwt.ts';
import { createPinoLogger } from './pino-logger.ts';

const METRICS = ['off', 'operator', 'public'] as const;

export async function serve(config: Config, io: CliIo): Promise<ExitCode> {
  const { settings } = config;
  const logger = createPinoLogger(settings.logLevel, 'stdout');
  const gateway = await createGateway({ ...(await gatewayOptions(config)), logger });
  try {
    const { url } = await gateway.listen({ port: settings.port, host: settings.host });
    logger.info({ url, mount: settings.mount, schemaVersion: gateway.stats().schemaVersion }, 'listening');
    await io.untilStopped();
    logger.info({}, 'draining');
  } finally {
    await gateway.close();
  }
  logger.info({}, 'stopped');
  return EXIT.ok;
}

/** Reads the schema where it is a file. Throws a `ConfigError`. */
export async function gatewayOptions(config: Config): Promise<GatewayOptions> {
  const { settings, limits, hooks } = config;
  return {
    // `createGateway` checks all of it.
    schema: (await readSchemaDocument(config)) as SchemaDocument,
    storage: storageOptionOf(config),
    ...(await accessOf(config)),
    rowValidators: hooks.rowValidators,
    ...(hooks.commitValidator === null ? {} : { commitValidator: hooks.commitValidator }),
    crdtMergers: hooks.crdtMergers,
    checkpoints: config.checkpoints,
    ...(settings.operatorToken === null ? {} : { operatorToken: settings.operatorToken }),
    ...(settings.ticketSecret === null ? {} : { ticketSecret: settings.ticketSecret }),
    metrics: METRICS.find((mode) => mode === settings.metrics) ?? 'off',
    mount: settings.mount,
    allowedOrigins: settings.allowedOrigins,
    duplicateClients: settings.duplicateClients === 'keep' ? 'keep' : 'replace',
    limits,
  };
}

type Access = Pick<GatewayOptions, 'authenticate' | 'resolveScopes'>;

async function accessOf({ access, hooks }: Config): Promise<Access> {
  if (access.kind === 'tokens') return createStaticTokens(access.tokens);
  if (access.kind === 'jwt') return jwtAccess(access.jwt, hooks);
  const { authenticate, resolveScopes } = hooks;
  if (authenticate !== null && resolveScopes !== null) return { authenticate, resolveScopes };
  throw new ConfigError(['authenticate and resolveScopes are both needed']);
}

/** A `resolveScopes` of the host takes the place of the scopes in the token. */
async function jwtAccess(jwt: JwtOptions, { resolveScopes }: Config['hooks']): Promise<Access> {
  try {
    const own = await createJwtAuth(jwt);
    return resolveScopes === null ? own : { ...own, resolveScopes };
  } catch (failure) {
    if (failure instanceof RangeError) throw new ConfigError([failure.message]);
    throw failure;
  }
}
