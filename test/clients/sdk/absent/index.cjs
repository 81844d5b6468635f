// @azure-tools/rlc-common makes REST level clients, which nothing here asks for, and is not in every registry. Whatever
// of it is used all the same says so.
module.exports = new Proxy({}, {
  get(_, name) {
    if (name === "__esModule") return true;
    return () => {
      throw new Error(`@azure-tools/rlc-common is not installed: ${String(name)} is for REST level clients`);
    };
  },
});
