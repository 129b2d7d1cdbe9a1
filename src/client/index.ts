/** `tidegate/client`: a replica in memory for browsers and Node. */

export type { ColumnValue } from '../protocol/schema.ts';
export type {
  ColumnDocument,
  SchemaDocument,
  ScopeDocument,
  TableDocument,
} from '../protocol/schema-document.ts';
export { BROWSER_CLOCK, BROWSER_RANDOM } from './browser-clock.ts';
export type { TableChange } from './changes.ts';
export {
  type Client,
  type ClientOptions,
  createClient,
  type MutationOf,
  type SentCommit,
  type Tables,
} from './client.ts';
export { ClientError, type ClientErrorCode } from './client-error.ts';
export { type ClientLimits, DEFAULT_CLIENT_LIMITS } from './client-limits.ts';
export type { Mutation, RowInput } from './mutation.ts';
export type { CommitOutcome, Conflict } from './outbox.ts';
export type {
  FetchedResponse,
  FetchFunction,
  FetchInit,
  Sha256Function,
  WebSocketConstructor,
  WebSocketLike,
} from './platform.ts';
export type { PresenceHandle, PresencePeer } from './presence.ts';
export type { Row } from './replica.ts';
export type { ClientState, ClientStatus, StatusError, StopReason } from './status.ts';
export type { SubscribeRequest, SubscriptionHandle } from './subscription-handle.ts';
export type { SubscriptionState } from './subscriptions.ts';
export type { TokenOption } from './token-source.ts';
