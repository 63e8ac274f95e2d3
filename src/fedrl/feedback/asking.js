// Talking to the server that a page came from, with the key of its link.
export const key = decodeURIComponent(location.hash.slice(1));

// `seen` is the question on the screen: it stays among those that wait.
export const ask = (name, body, seen = "") => fetch(name, {
  method: body === undefined ? "GET" : "POST",
  headers: { "X-Fedrl-Key": key, "X-Fedrl-Seen": encodeURIComponent(seen),
             "Content-Type": "application/json" },
  body: body === undefined ? undefined : JSON.stringify(body),
  credentials: "omit", cache: "no-store", signal: AbortSignal.timeout(10000),
});

// A file with all that the person has said.
export async function download(kind) {
  const reply = await ask(`export?as=${kind}`);
  if (!reply.ok) throw new Error();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await reply.blob());
  link.download = `my-answers.${kind}`;
  link.click();
  URL.revokeObjectURL(link.href);
}
