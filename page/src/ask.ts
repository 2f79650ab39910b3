// Questions to the server, one by one, and whether it lets the reader in. Knows no answer.
import { signal } from "@preact/signals";
import type { Envelope } from "./answers";
import { readAnswer } from "./plain";

export const BASE = "/apis/answers.operators.koordinator.sh/v1alpha1";

export type Standing = "starting" | "live" | "silent" | "locked";

export const standing = signal<Standing>("starting");

export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

async function ask<T>(path: string, init?: RequestInit): Promise<T> {
  const response = await fetch(`${BASE}/${path}`, { ...init, credentials: "same-origin" });
  const body: unknown = await response.text().then((text) => readAnswer<unknown>(text)).catch(() => ({}));
  if (!response.ok) {
    const { error, message } = body as { error?: string; message?: string };
    if (response.status === 401) standing.value = "locked";
    throw new Refusal(response.status, error ?? "Error", message ?? response.statusText);
  }
  return body as T;
}

export function get<T>(path: string): Promise<Envelope<T>> {
  return ask<Envelope<T>>(path);
}

export function post<T>(path: string, body: string): Promise<Envelope<T>> {
  return ask<Envelope<T>>(path, { method: "POST", body });
}

/** Go where people say who they are, if the server has such a form; false if it has none. */
export async function goToLogin(): Promise<boolean> {
  const response = await fetch("/login", { method: "HEAD", credentials: "same-origin" }).catch(() => null);
  if (response?.ok) window.location.assign("/login");
  return response?.ok ?? false;
}

/** Trade a key for a cookie; return why that is refused, or nothing. */
export async function trade(key: string): Promise<string> {
  const request: RequestInit = { method: "POST", body: JSON.stringify({ key }), credentials: "same-origin" };
  const response = await fetch("/session", request).catch(() => null);
  if (response?.ok) return "";
  if (response?.status === 401) return "This is not the key.";
  const told = await response?.json().catch(() => null) as { message?: string } | null | undefined;
  return told?.message ?? "The server does not answer.";
}
