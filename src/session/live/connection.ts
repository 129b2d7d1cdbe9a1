/**
 * One socket as the session sees it, whatever the transport (`ws`, uWebSockets.js). No code here.
 *
 * MUST: messages leave in the order of `send`. After `closed` nothing is sent and every call is harmless. The bytes of a
 * `Uint8Array` handed to `send` are not changed by anybody afterwards, so one buffer may go to many connections. Inbound
 * bytes handed to the endpoint are its own copy.
 */
import type { CloseCode } from '../../protocol/close-codes.ts';

export interface Connection {
  /** Unique in the process. */
  readonly id: string;
  /** Bytes accepted by `send` and not yet handed to the kernel. */
  readonly bufferedBytes: number;
  /** A string leaves as a text message, bytes as a binary one. `buffered`: accepted, but above the transport's low mark. */
  send(message: string | Uint8Array): 'sent' | 'buffered' | 'closed';
  /** Resolves when `bufferedBytes` fell to the low mark or the socket is gone; at once when it is there already. */
  drained(): Promise<'open' | 'closed'>;
  /** WebSocket ping; the pong arrives at `SessionEndpoint.onPong`. */
  ping(): void;
  pauseReading(): void;
  resumeReading(): void;
  /** Starts the close handshake; bounded by a deadline, then the socket is destroyed. Never throws. */
  close(code: CloseCode, reason: string): void;
}

/** What a transport calls for one connection. None of these throws. */
export interface SessionEndpoint {
  onText(text: string): void;
  onBinary(bytes: Uint8Array): void;
  onPong(): void;
  /** The socket is gone, for whatever reason. Called exactly once. */
  onClosed(): void;
}
