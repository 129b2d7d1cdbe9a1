/** What the gateway needs of a logger; a `pino` instance is one. Never handed a payload, a token or a query string. */
export interface GatewayLogger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

const discard = (): void => undefined;

/** The "off" logger. */
export const SILENT_LOGGER: GatewayLogger = { debug: discard, info: discard, warn: discard, error: discard };
