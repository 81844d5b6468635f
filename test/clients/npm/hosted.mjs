// Uses a kubeconfig of the service, with the customer's key or with the key that the service generated.

import { request } from "node:https";

// askHostedCluster returns the status of a GET at the hosted API server.
export function askHostedCluster(kubeconfig, key, path) {
  const field = (name) => {
    const found = new RegExp(`^\\s*-?\\s*"?${name}"?:\\s*"?([^"\\s]+)"?\\s*,?$`, "m").exec(kubeconfig);
    if (!found) throw new Error(`the kubeconfig has no ${name}`);
    return found[1];
  };
  const pem = (name) => Buffer.from(field(name), "base64");
  return new Promise((resolve, reject) => {
    const ask = request(new URL(path, field("server")), { ca: pem("certificate-authority-data"), cert: pem("client-certificate-data"), key: key ?? pem("client-key-data"), agent: false });
    ask.on("response", (response) => {
      response.resume();
      response.on("end", () => resolve(response.statusCode));
    });
    ask.on("error", reject);
    ask.end();
  });
}
