/** The command line's logger: structured lines, one per entry. */
import { pino } from 'pino';
import type { GatewayLogger } from './logger.ts';

const FD = { stdout: 1, stderr: 2 } as const;

export function createPinoLogger(level: string, stream: 'stdout' | 'stderr'): GatewayLogger {
  return pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime }, pino.destination(FD[stream]));
}
