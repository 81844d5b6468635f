// Uses a kubeconfig of the service, with the customer's key or with the key that the service generated.

import { request as plain } from "node:http";
import { request } from "node:https";

// askHostedCluster returns the status of a GET at the hosted API server. proxy is the URL of an HTTP proxy to it, or empty.
export async function askHostedCluster(kubeconfig, key, path, proxy) {
  const field = (name) => {
    const found = new RegExp(`^\\s*-?\\s*"?${name}"?:\\s*"?([^"\\s]+)"?\\s*,?$`, "m").exec(kubeconfig);
    if (!found) throw new Error(`the kubeconfig has no ${name}`);
    return found[1];
  };
  const pem = (name) => Buffer.from(field(name), "base64");
  const url = new URL(path, field("server"));
  const options = { ca: pem("certificate-authority-data"), cert: pem("client-certificate-data"), key: key ?? pem("client-key-data"), agent: false };
  if (proxy) {
    options.socket = await tunnel(proxy, url);
    options.servername = url.hostname;
  }
  return new Promise((resolve, reject) => {
    const ask = request(url, options);
    ask.on("response", (response) => {
      response.resume();
      response.on("end", () => resolve(response.statusCode));
    });
    ask.on("error", reject);
    ask.end();
  });
}

// tunnel returns a connection to the host of a URL through an HTTP proxy.
function tunnel(proxy, url) {
  const { hostname, port } = new URL(proxy);
  const target = `${url.hostname}:${url.port || 443}`;
  return new Promise((resolve, reject) => {
    const connect = plain({ host: hostname, port, method: "CONNECT", path: target, agent: false });
    connect.on("connect", (response, socket) => {
      if (response.statusCode === 200) return resolve(socket);
      socket.destroy();
      reject(new Error(`the proxy refused ${target}: ${response.statusCode}`));
    });
    connect.on("error", reject);
    connect.end();
  });
}
