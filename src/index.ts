/** `tidegate`: the gateway, for hosts that embed it. Everything else of this package is internal. */

// Who speaks, and what they may do.
export {
  type Authenticate,
  type AuthIdentity,
  type AuthRequest,
  bearerToken,
  createStaticTokens,
  type StaticGrant,
  type StaticTokens,
} from './gateway/auth.ts';
// Backfills of derived tables.
export {
  type BackfillTarget,
  type PartitionsRequest,
  runBackfill,
  runBackfills,
} from './gateway/backfills.ts';
// Storages and buses, for hosts that bring their own or share one.
export { createMemoryBusNetwork, type MemoryBusNetwork } from './gateway/bus/memory.ts';
export {
  ensureReady,
  ReadinessError,
  type ReadinessPhase,
  type ReadyRequest,
} from './gateway/ensure-ready.ts';
export type { FetchHandler, FetchInfo } from './gateway/fetch-http.ts';
// The gateway and its options.
export {
  type ActorAddress,
  createGateway,
  type Gateway,
  type GatewayStats,
} from './gateway/gateway.ts';
export type { GatewayOptions, PostgresTuning, StorageOption } from './gateway/gateway-options.ts';
export { createJwtAuth, type JwtKeys, type JwtOptions } from './gateway/jwt.ts';
export type { ListenAddress, ListenRequest } from './gateway/listener.ts';
export type { GatewayLogger } from './gateway/logger.ts';
export type { NodeHandler } from './gateway/node-http.ts';
export { createRandom } from './gateway/random.ts';
export { createRealClock } from './gateway/real-clock.ts';
export type { Clock, Random, Timer } from './protocol/clock.ts';
// Errors.
export {
  type ErrorBody,
  type ErrorCode,
  type JsonObject,
  type JsonValue,
  SyncError,
} from './protocol/errors.ts';
export type { ScopeMap } from './protocol/frames.ts';
export { DEFAULT_LIMITS, type Limits } from './protocol/limits.ts';
// Validators and mergers.
export type { ResultDetails } from './protocol/result-details.ts';
// Schemas.
export type { ColumnValue, CompiledSchema } from './protocol/schema.ts';
export { type CompileOptions, compileSchema } from './protocol/schema-compiler.ts';
export type {
  ColumnDocument,
  IndexDocument,
  SchemaDocument,
  ScopeDocument,
  TableDocument,
} from './protocol/schema-document.ts';
export { SchemaError, type SchemaProblem } from './protocol/schema-problems.ts';
export type { Bus, Notice } from './session/live/bus.ts';
export type {
  BackfillBatch,
  BackfillInput,
  BackfillProgress,
  BackfillRequest,
  BackfillResult,
  SourceRow,
} from './session/sync/backfill-request.ts';
export { BackfillError, type DerivedRow } from './session/sync/backfill-writes.ts';
export type { QueryRequest } from './session/sync/gated-query.ts';
export type {
  CandidateReader,
  CommitOperation,
  CommitValidator,
  CommitValidatorInput,
  CrdtMerger,
  Identity,
  NamedRow,
  RowValidator,
  RowValidatorInput,
} from './session/sync/sync-deps.ts';
export { CommitValidationRejection, ValidationRejection } from './session/sync/validation.ts';
export type { Checkpoint, CheckpointDeclaration, CheckpointState } from './storage/checkpoints.ts';
export type { SegmentStore } from './storage/segments.ts';
export { openSqliteStorage, type SqliteStorageOptions } from './storage/sqlite/sqlite-storage.ts';
export type { Storage } from './storage/storage.ts';
export {
  StorageConstraintError,
  StorageError,
  type StorageErrorCode,
  StorageQueryError,
} from './storage/storage-error.ts';
