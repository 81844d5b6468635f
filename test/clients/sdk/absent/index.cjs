// @azure-tools/rlc-common generates REST level clients, which are not used here, and is missing in some registries. Every use
// of this replacement throws.
module.exports = new Proxy({}, {
  get(_, name) {
    if (name === "__esModule") return true;
    return () => {
      throw new Error(`@azure-tools/rlc-common is not installed: ${String(name)} is for REST level clients`);
    };
  },
});
