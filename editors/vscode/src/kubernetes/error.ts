/**
 * Why a relay in Kubernetes is not reached. The message is a whole sentence. Known by its name in the rest of the
 * extension, which is bundled apart and has no such class.
 */
export class KubeError extends Error {
  override readonly name = 'KubeError';

  /** `isForbidden`: the user lacks a right. */
  constructor(
    message: string,
    readonly isForbidden = false,
  ) {
    super(message);
  }
}
