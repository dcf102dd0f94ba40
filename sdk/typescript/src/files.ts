// Files of a machine.
import type { Client, Event, Params } from "./client.js";
import { bytesOf } from "./result.js";
import { CarrelError } from "./transport.js";
import type { Entry } from "./types.js";

type Writing = Omit<Params<"file_write">, "machine" | "path">;

/** Paths are absolute; `user` is who reads or writes (default: the image's user). */
export class Files {
  constructor(private readonly client: Client, private readonly machine: string) {}

  read(path: string, user?: string): Promise<Uint8Array> {
    return this.client.call("file_read", { machine: this.machine, path, user });
  }

  async readText(path: string, user?: string): Promise<string> {
    return new TextDecoder().decode(await this.read(path, user));
  }

  /** Writes the whole file, or nothing. */
  async write(path: string, data: string | Uint8Array, params: Writing = {}): Promise<void> {
    await this.client.call("file_write", { ...params, machine: this.machine, path }, bytesOf(data));
  }

  list(path: string, user?: string): Promise<Entry[]> {
    return this.client.pages("file_list", "entries", { machine: this.machine, path, user });
  }

  stat(path: string, follow = false, user?: string): Promise<Entry> {
    return this.client.call("file_stat", { machine: this.machine, path, follow, user });
  }

  async exists(path: string): Promise<boolean> {
    try {
      await this.stat(path);
    } catch (e) {
      if (!(e instanceof CarrelError) || e.code !== "not_found") throw e;
      return false;
    }
    return true;
  }

  /** Makes a directory and the missing ones above it. */
  async mkdir(path: string, user?: string): Promise<void> {
    await this.client.call("file_mkdir", { machine: this.machine }, { path, user });
  }

  async move(source: string, target: string, user?: string): Promise<void> {
    await this.client.call("file_move", { machine: this.machine }, { from: source, to: target, user });
  }

  async remove(path: string, recursive = false, user?: string): Promise<void> {
    await this.client.call("file_remove", { machine: this.machine, path, recursive, user });
  }

  /** A directory and everything below it as a tar archive. */
  readTar(path: string, user?: string): Promise<Uint8Array> {
    return this.client.call("tar_read", { machine: this.machine, path, user });
  }

  async writeTar(path: string, archive: Uint8Array, user?: string): Promise<void> {
    await this.client.call("tar_write", { machine: this.machine, path, user }, archive);
  }

  /** Changes of a file or a directory, as they happen. */
  watch(path: string): AsyncGenerator<Event<"file_watch">> {
    return this.client.events("file_watch", { machine: this.machine, path });
  }
}
