/** What a push asks about the blobs its rows refer to (§6.6, part 2.24 decision 12). */
export interface BlobReference {
  readonly partition: string;
  readonly actorId: string;
  /** `sha256:` and 64 lower-case hex digits. */
  readonly blobId: string;
}

export interface BlobReferences {
  /** True when this actor may make a row refer to the blob. Asked under the partition lock. */
  exists(reference: BlobReference): boolean | Promise<boolean>;
}

/** No blob store: a new reference is `blob.not_found`. */
export const NO_BLOBS: BlobReferences = { exists: () => false };
